//! Metrics: publishes [`RedisStats`] through the `metrics` facade, as [`bellwether::metrics`] does with
//! the statistics of caches. Call it where you call those. [`bellwether::metrics::describe`] describes
//! these metrics, too.
//!
//! # Names
//! All begin with `bellwether_`. The name that you pass is the value of `store`, so give each store a
//! name of its own. Addresses of servers are labels; keys and tags never are.
//!
//! | metric | type | labels | what it is |
//! |---|---|---|---|
//! | `store_operations_total` | counter | `store`, `operation` | operations of a `RedisStore` |
//! | `store_errors_total` | counter | `store`, `error` | those that failed |
//! | `store_operation_duration_seconds` | histogram | `store`, `operation` | how long operations of a `RedisStore` took |
//! | `store_up` | gauge | `store` | 0 while the circuit breaker is open |
//! | `store_connects_total`, `store_outages_total`, `store_pushes_total`, `store_unreadable_total` | counter | `store` | [`RedisStats`] |
//! | `store_wake_ups` | gauge | `store`, `by` | 1 for the way in which waiters are woken: `tracking`, `messages` or `polling` |
//! | `store_node_up` | gauge | `store`, `node` | 0 while the circuit breaker of a server is open, 1 while it is closed. The label is its address. A recorder keeps the series of a server that requests no longer go to, unless it drops those that are not set any more (`PrometheusBuilder::idle_timeout`) |
//! | `store_node_requests_total`, `store_node_redirections_total`, `store_node_connects_total`, `store_node_outages_total` | counter | `store`, `node` | [`RedisNodeStats`] |
//! | `store_node_errors_total` | counter | `store`, `node`, `error` | requests that have failed there |
//! | `store_invalidations_pending` | gauge | `store` | [`ReplayStats`](super::ReplayStats): invalidations that are to be repeated |
//! | `store_invalidations_kept_total`, `store_invalidations_replayed_total`, `store_invalidations_dropped_total`, `store_invalidations_reasserted_total` | counter | `store` | the same |
//! | `near_hits_total`, `near_evictions_total` | counter | `store` | the near tier |
//! | `near_entries`, `near_bytes` | gauge | `store` | the same |
//! | `near_disconnected_seconds_total` | counter | `store` | whole seconds in which no copy could be served |

use bellwether::metrics::{publish_counter, publish_gauge, publish_histogram};

use super::{RedisNodeStats, RedisStats};

/// Publishes the statistics of a `RedisStore` under this name.
pub fn publish_redis_store(name: &str, stats: &RedisStats) {
    let store = ("store", name);
    for (operation, count) in stats.operations.by_name() {
        let labels = [store, ("operation", operation)];
        publish_counter("bellwether_store_operations_total", &labels, count);
    }
    for (error, count) in stats.errors.by_name() {
        publish_counter("bellwether_store_errors_total", &[store, ("error", error)], count);
    }
    for (operation, times) in stats.operation_times.by_name() {
        let labels = [store, ("operation", operation)];
        publish_histogram("bellwether_store_operation_duration_seconds", &labels, &times);
    }
    let up = f64::from(u8::from(!stats.is_down));
    publish_gauge("bellwether_store_up", &[store], up);
    let replay = &stats.replay;
    for (metric, count) in [
        ("bellwether_store_connects_total", stats.connects),
        ("bellwether_store_outages_total", stats.outages),
        ("bellwether_store_pushes_total", stats.pushes),
        ("bellwether_store_unreadable_total", stats.unreadable),
        ("bellwether_store_invalidations_kept_total", replay.kept),
        ("bellwether_store_invalidations_replayed_total", replay.replayed),
        ("bellwether_store_invalidations_dropped_total", replay.dropped),
        ("bellwether_store_invalidations_reasserted_total", replay.reasserted),
    ] {
        publish_counter(metric, &[store], count);
    }
    publish_gauge("bellwether_store_invalidations_pending", &[store], replay.pending as f64);
    for (way, is_it) in stats.wake_ups.by_name() {
        let is_it = f64::from(u8::from(is_it));
        publish_gauge("bellwether_store_wake_ups", &[store, ("by", way)], is_it);
    }
    stats.nodes.iter().for_each(|node| publish_node(name, node));
    if let Some(near) = &stats.near {
        publish_counter("bellwether_near_hits_total", &[store], near.hits);
        publish_counter("bellwether_near_evictions_total", &[store], near.evictions);
        publish_gauge("bellwether_near_entries", &[store], near.entries as f64);
        publish_gauge("bellwether_near_bytes", &[store], near.bytes as f64);
        let disconnected = near.disconnected.as_secs();
        publish_counter("bellwether_near_disconnected_seconds_total", &[store], disconnected);
    }
}

fn publish_node(store: &str, stats: &RedisNodeStats) {
    let node = [("store", store), ("node", &*stats.address)];
    let up = f64::from(u8::from(!stats.is_down));
    publish_gauge("bellwether_store_node_up", &node, up);
    for (metric, count) in [
        ("bellwether_store_node_requests_total", stats.requests),
        ("bellwether_store_node_redirections_total", stats.redirections),
        ("bellwether_store_node_connects_total", stats.connects),
        ("bellwether_store_node_outages_total", stats.outages),
    ] {
        publish_counter(metric, &node, count);
    }
    for (error, count) in stats.errors.by_name() {
        let [store, node] = node;
        let labels = [store, node, ("error", error)];
        publish_counter("bellwether_store_node_errors_total", &labels, count);
    }
}
