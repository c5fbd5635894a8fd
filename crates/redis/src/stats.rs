//! The statistics of a `RedisStore`.

use std::time::Duration;

use bellwether::stats::{
    MetricValue, MetricValues, OperationTimeStats, OutageStats, StoreErrorStats,
};
use bellwether_redis_client::RedisNodeStats;

/// The state of a [`RedisStore`](super::RedisStore), and what it has done since it was made.
///
/// # Metrics
/// For `bellwether::metrics`, with names that begin with `bellwether_`. The name that you pass is the
/// value of `store`. Addresses of servers are labels; keys and tags never are.
///
/// | metric | type | labels | what it is |
/// |---|---|---|---|
/// | `store_errors_total` | counter | `store`, `error` | those that failed |
/// | `store_operation_duration_seconds` | histogram | `store`, `operation` | how many operations of a `RedisStore` have ended, and how long they took |
/// | `store_up` | gauge | `store` | 0 while the circuit breaker is open |
/// | `store_connects_total`, `store_outages_total`, `store_stalls_total`, `store_pushes_total`, `store_unreadable_total` | counter | `store` | this |
/// | `store_subscribed` | gauge | `store` | 1 while messages wake waiters, 0 while they poll |
/// | `store_node_up` | gauge | `store`, `node` | 0 while the circuit breaker of a server is open, 1 while it is closed. The label is its address. A recorder keeps the series of a server that requests no longer go to, unless it drops those that are not set any more (`PrometheusBuilder::idle_timeout`) |
/// | `store_node_requests_total`, `store_node_redirections_total`, `store_node_connects_total`, `store_node_outages_total` | counter | `store`, `node` | [`RedisNodeStats`] |
/// | `store_node_errors_total` | counter | `store`, `node`, `error` | requests that have failed there |
/// | `store_invalidations_pending` | gauge | `store` | [`ReplayStats`]: invalidations that are to be repeated |
/// | `store_invalidations_kept_total`, `store_invalidations_replayed_total`, `store_invalidations_dropped_total`, `store_invalidations_reasserted_total` | counter | `store` | the same: those that have failed and are repeated, that a server has executed since, that were too many, and that were repeated after a failover |
/// | `outage_hits_total` | counter | `store` | [`OutageStats`]: lookups that this process answered itself, while the server did not |
/// | `outage_entries` | gauge | `store` | the same: what it keeps for that |
/// | `near_hits_total`, `near_evictions_total` | counter | `store` | the near tier |
/// | `near_entries`, `near_bytes` | gauge | `store` | the same |
/// | `near_disconnected_seconds_total` | counter | `store` | whole seconds in which no copy could be served |
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RedisStats {
    /// Attempts to connect, successful or not.
    pub connects: u64,
    /// How often the server was taken to be down.
    pub outages: u64,
    /// How often a reply was late because this process was not running, or had no processor, or a runtime
    /// of it was blocked. That says nothing about the server, and opens no circuit breaker.
    pub stalls: u64,
    /// Push messages of the server about changes, and disconnections; and messages that scripts
    /// published to this process.
    pub pushes: u64,
    /// Entries that could not be read and counted as misses: damaged, of a newer version of this
    /// crate, of another key, or of a foreign type.
    pub unreadable: u64,
    /// Operations that have ended, successful or not: how many, and how long they took.
    pub operation_times: OperationTimeStats,
    /// Those of them that have failed, by the kind of the error. Each failed request for a layer is
    /// in one of them; without the store, layers load for themselves.
    pub errors: StoreErrorStats,
    /// Whether the circuit breaker is open: see [`RedisStore::is_down`](super::RedisStore::is_down).
    pub is_down: bool,
    /// Invalidations that are repeated.
    pub replay: ReplayStats,
    /// Whether waiters are woken by messages: the script that ends a lease publishes one to each process that
    /// waits, with the entry if that is short. If the server refuses messages, or the subscription is not
    /// open, waiters read again after pauses of up to 250 ms.
    pub is_subscribed: bool,
    /// What this process keeps while the server does not answer:
    /// see [`RedisOptions::outage_ttl`](super::RedisOptions::outage_ttl).
    pub outage: OutageStats,
    /// The near tier, if the store has one.
    pub near: Option<NearStats>,
    /// The servers, in the order of their addresses: the one of a fixed address, the nodes of a
    /// cluster that are asked, or the primary that sentinels name.
    pub nodes: Vec<RedisNodeStats>,
}

/// The state of the near tier, which keeps copies of entries in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NearStats {
    /// Lookups that a copy answered.
    pub hits: u64,
    /// How many copies are kept, valid or not.
    pub entries: u64,
    /// How many bytes they take.
    pub bytes: u64,
    /// Copies that were removed to make room for others.
    pub evictions: u64,
    /// For how long changes were not reported because the connection was broken, so that no copy
    /// was served: from the first connection on, up to now.
    pub disconnected: Duration,
}

/// Invalidations by this process that a store repeats, because they have failed or because a server
/// may have lost them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayStats {
    /// How many are to be repeated now, at most one per key or tag. While there are any, other
    /// processes may still read what was invalidated.
    pub pending: u64,
    /// Invalidations that have failed and were kept.
    pub kept: u64,
    /// Kept or re-asserted invalidations that the server has executed since.
    pub replayed: u64,
    /// Invalidations that were not kept, because there were too many. In this process, all entries
    /// from before count as none; other processes may still read them.
    pub dropped: u64,
    /// Acknowledged invalidations that were repeated, because the server may have lost them.
    pub reasserted: u64,
}

bellwether::metric_table! { RedisStats, "store":
    Counter "bellwether.store.errors" "{error}" "Operations of the store that have failed."
        = |it, to| to.each("error", it.errors.by_name());
    Histogram "bellwether.store.operation.duration" "s" "How long operations of the store took."
        = |it, to| to.each("operation", it.operation_times.by_name());
    Gauge "bellwether.store.up" "{store}" "0 while the circuit breaker of the store is open."
        = |it, to| to.one(u64::from(!it.is_down));
    Counter "bellwether.store.connects" "{connection}" "Attempts to connect to the store."
        = |it, to| to.one(it.connects);
    Counter "bellwether.store.outages" "{outage}" "How often the store was taken to be down."
        = |it, to| to.one(it.outages);
    Counter "bellwether.store.stalls" "{stall}"
        "How often this process was not running while the store had to answer."
        = |it, to| to.one(it.stalls);
    Counter "bellwether.store.pushes" "{message}" "Push messages of the store."
        = |it, to| to.one(it.pushes);
    Counter "bellwether.store.unreadable" "{entry}"
        "Entries that could not be read and counted as misses."
        = |it, to| to.one(it.unreadable);
    Gauge "bellwether.store.subscribed" "{store}" "1 while messages wake waiters, 0 while they poll."
        = |it, to| to.one(u64::from(it.is_subscribed));
    Gauge "bellwether.store.node.up" "{node}"
        "0 while the circuit breaker of a server of the store is open."
        = |it, to| by_node(it, to, |node| u64::from(!node.is_down));
    Counter "bellwether.store.node.requests" "{request}"
        "Commands and scripts that a server of the store was sent."
        = |it, to| by_node(it, to, |node| node.requests);
    Counter "bellwether.store.node.redirections" "{request}"
        "Requests that a server has sent to another one of its cluster."
        = |it, to| by_node(it, to, |node| node.redirections);
    Counter "bellwether.store.node.connects" "{connection}"
        "Attempts to connect to a server of the store."
        = |it, to| by_node(it, to, |node| node.connects);
    Counter "bellwether.store.node.outages" "{outage}"
        "How often a server of the store was taken to be down."
        = |it, to| by_node(it, to, |node| node.outages);
    Counter "bellwether.store.node.errors" "{error}"
        "Requests to a server of the store that have failed."
        = |it, to| for node in &it.nodes {
            for (error, count) in node.errors.by_name() {
                to.labelled(&[("node", &node.address), ("error", error)], count);
            }
        };
    Gauge "bellwether.store.invalidations.pending" "{invalidation}"
        "Invalidations that are to be repeated."
        = |it, to| to.one(it.replay.pending);
    Counter "bellwether.store.invalidations.kept" "{invalidation}"
        "Invalidations that have failed and are repeated."
        = |it, to| to.one(it.replay.kept);
    Counter "bellwether.store.invalidations.replayed" "{invalidation}"
        "Kept or re-asserted invalidations that the server has executed."
        = |it, to| to.one(it.replay.replayed);
    Counter "bellwether.store.invalidations.dropped" "{invalidation}"
        "Invalidations that have failed and were too many to be kept."
        = |it, to| to.one(it.replay.dropped);
    Counter "bellwether.store.invalidations.reasserted" "{invalidation}"
        "Invalidations that were repeated because the server may have lost them."
        = |it, to| to.one(it.replay.reasserted);
    Counter "bellwether.outage.hits" "{lookup}"
        "Lookups that this process answered itself, while the server did not."
        = |it, to| to.one(it.outage.hits);
    Gauge "bellwether.outage.entries" "{entry}"
        "Entries that this process keeps without the server."
        = |it, to| to.one(it.outage.entries);
    Counter "bellwether.near.hits" "{lookup}" "Lookups that a copy in this process answered."
        = |it, to| it.near.iter().for_each(|near| to.one(near.hits));
    Counter "bellwether.near.evictions" "{entry}" "Copies that were removed to make room."
        = |it, to| it.near.iter().for_each(|near| to.one(near.evictions));
    Gauge "bellwether.near.entries" "{entry}" "Copies that are kept in this process."
        = |it, to| it.near.iter().for_each(|near| to.one(near.entries));
    Gauge "bellwether.near.bytes" "By" "The size of the copies in this process."
        = |it, to| it.near.iter().for_each(|near| to.one(near.bytes));
    Counter "bellwether.near.disconnected" "s"
        "Time in which no copy in this process could be served."
        = |it, to| it.near.iter().for_each(|near| to.one(near.disconnected.as_secs()));
}

/// A value of each server.
fn by_node<V: Into<MetricValue>>(
    stats: &RedisStats,
    to: &mut MetricValues<'_>,
    value: impl Fn(&RedisNodeStats) -> V,
) {
    stats.nodes.iter().for_each(|node| to.labelled(&[("node", &node.address)], value(node)));
}
