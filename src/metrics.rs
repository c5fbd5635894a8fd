//! Metrics: publishes [statistics](crate::stats) through the [`metrics`](metrics_facade) facade, to
//! whatever recorder the program has installed.
//!
//! Nothing is counted here. Each call publishes a snapshot: counters and gauges as absolute values, and
//! of histograms what came since the last call. So nothing is lost or counted twice if the recorder
//! comes late. Call the functions in the handler that renders the metrics, or in a task every ten
//! seconds.
//!
//! Give the recorder the bounds of the histograms, [`HistogramStats::SECONDS`] for those whose names
//! end with `_seconds`, and [`HistogramStats::CALLERS`] for `flight_callers`. Then it has the same counts
//! as the snapshot. (For `metrics-exporter-prometheus`, that is
//! `PrometheusBuilder::set_buckets_for_metric`; without buckets, it makes summaries.) The values that
//! it gets are not the single ones, but add up to their sum.
//!
//! ```
//! use bellwether::{MemoryStore, ReadThroughLayer, Key, metrics};
//!
//! let store = MemoryStore::new(10_000);
//! let layer = ReadThroughLayer::new(store.clone(), |sku: &u64| Key::of("item").with(*sku));
//! let cache = layer.handle();
//!
//! let scrape = move || {
//!     metrics::publish_cache("catalog", &cache.stats());
//!     metrics::publish_memory_store("pages", &store.stats());
//!     // then render, for example `PrometheusHandle::render`
//! };
//! scrape();
//! ```
//!
//! Call [`describe`] once, after the recorder is installed, for recorders that show what a metric is.
//! The folder `observability` of the repository has a dashboard for Grafana and alert rules for
//! Prometheus, by these names.
//!
//! # Names
//! All begin with `bellwether_`. Labels have few values, which are known before, but for the addresses
//! of servers: keys, tags and texts of errors are never labels. The names that you pass are the values of `cache` and `store`,
//! so give each cache and each store a name of its own: two with one name would hide each other.
//!
//! | metric | type | labels | what it is |
//! |---|---|---|---|
//! | `requests_total` | counter | `cache`, `outcome`, `detail` | [`RequestStats`](crate::stats::RequestStats): `hit_local` is `outcome="hit", detail="local"` |
//! | `loads_started_total` | counter | `cache`, `why` | [`LoadStartStats`](crate::stats::LoadStartStats) |
//! | `loads_ended_total` | counter | `cache`, `result` | [`LoadEndStats`](crate::stats::LoadEndStats) |
//! | `loads_running` | gauge | `cache` | loads that have started and not ended |
//! | `loads_queued` | gauge | `cache` | [`CurrentStats`]: uncached loads that wait because as many run as may |
//! | `flights`, `waiters` | gauge | `cache` | the same: keys that are loaded or waited for, and the callers that wait |
//! | `failing_keys` | gauge | `cache` | the same: keys whose last loads have failed |
//! | `wakes_total` | counter | `cache`, `by` | [`WakeStats`](crate::stats::WakeStats) |
//! | `leases_total` | counter | `cache`, `event` | [`LeaseStats`](crate::stats::LeaseStats) |
//! | `commits_total` | counter | `cache`, `result` | [`CommitStats`](crate::stats::CommitStats) |
//! | `refreshes_total` | counter | `cache`, `result` | [`RefreshStats`](crate::stats::RefreshStats) |
//! | `refused_total` | counter | `cache`, `limit` | [`LimitStats`](crate::stats::LimitStats) |
//! | `invalidations_total` | counter | `cache`, `event` | [`InvalidationStats`](crate::stats::InvalidationStats) |
//! | `load_duration_seconds` | histogram | `cache`, `result` | [`LoadTimeStats`](crate::stats::LoadTimeStats): how long loads took |
//! | `wait_duration_seconds` | histogram | `cache`, `place` | [`WaitTimeStats`](crate::stats::WaitTimeStats): how long callers waited for the load that answered them, `here` or `elsewhere` |
//! | `flight_callers` | histogram | `cache` | how many callers each flight had: the size of the stampedes that were held back |
//! | `notice_lag_seconds` | histogram | `cache` | how long ago the load of another process had ended when its waiters here noticed |
//! | `store_entries`, `store_bytes` | gauge | `store` | [`MemoryStats`] |
//! | `store_evictions_total` | counter | `store` | the same |
//! | `store_operations_total` | counter | `store`, `operation` | operations of a `RedisStore` |
//! | `store_errors_total` | counter | `store`, `error` | those that failed |
//! | `store_operation_duration_seconds` | histogram | `store`, `operation` | how long operations of a `RedisStore` took |
//! | `store_up` | gauge | `store` | 0 while the circuit breaker is open |
//! | `store_connects_total`, `store_outages_total`, `store_pushes_total`, `store_unreadable_total` | counter | `store` | `RedisStats` |
//! | `store_wake_ups` | gauge | `store`, `by` | 1 for the way in which waiters are woken: `tracking`, `messages` or `polling` |
//! | `store_node_up` | gauge | `store`, `node` | 0 while the circuit breaker of a server is open, 1 while it is closed. The label is its address. A recorder keeps the series of a server that requests no longer go to, unless it drops those that are not set any more (`PrometheusBuilder::idle_timeout`) |
//! | `store_node_requests_total`, `store_node_redirections_total`, `store_node_connects_total`, `store_node_outages_total` | counter | `store`, `node` | `RedisNodeStats` |
//! | `store_node_errors_total` | counter | `store`, `node`, `error` | requests that have failed there |
//! | `store_invalidations_pending` | gauge | `store` | [`ReplayStats`](crate::stats::ReplayStats): invalidations that are to be repeated |
//! | `store_invalidations_kept_total`, `store_invalidations_replayed_total`, `store_invalidations_dropped_total`, `store_invalidations_reasserted_total` | counter | `store` | the same |
//! | `near_hits_total`, `near_evictions_total` | counter | `store` | the near tier |
//! | `near_entries`, `near_bytes` | gauge | `store` | the same |
//! | `near_disconnected_seconds_total` | counter | `store` | whole seconds in which no copy could be served |

mod describe;
mod histograms;

#[cfg(feature = "redis")]
use metrics_facade::Label;
use metrics_facade::{counter, gauge};

pub use self::describe::{describe, describe_metrics};
pub use self::histograms::publish_histogram;

use crate::stats::{CacheStats, CurrentStats, HistogramStats, MemoryStats};

/// Publishes the statistics of a layer or cache under this name.
pub fn publish_cache(name: &str, stats: &CacheStats) {
    let CacheStats { requests, loads, wakes, leases, commits, refreshes, refused, .. } = stats;
    for (field, count) in requests.by_name() {
        let (outcome, detail) = field.split_once('_').unwrap_or((field, ""));
        let cache = name.to_owned();
        counter!("bellwether_requests_total", "cache" => cache, "outcome" => outcome, "detail" => detail)
            .absolute(count);
    }
    each("bellwether_loads_started_total", "cache", name, "why", loads.started.by_name());
    each("bellwether_loads_ended_total", "cache", name, "result", loads.ended.by_name());
    let CurrentStats { flights, waiters, queued_loads, failing_keys } = stats.current;
    let gauges = [
        ("bellwether_loads_running", loads.running()),
        ("bellwether_loads_queued", queued_loads),
        ("bellwether_flights", flights),
        ("bellwether_waiters", waiters),
        ("bellwether_failing_keys", failing_keys),
    ];
    for (metric, value) in gauges {
        set(metric, "cache", name, value);
    }
    each("bellwether_wakes_total", "cache", name, "by", wakes.by_name());
    each("bellwether_leases_total", "cache", name, "event", leases.by_name());
    each("bellwether_commits_total", "cache", name, "result", commits.by_name());
    each("bellwether_refreshes_total", "cache", name, "result", refreshes.by_name());
    each("bellwether_refused_total", "cache", name, "limit", refused.by_name());
    let invalidations = stats.invalidations.by_name();
    each("bellwether_invalidations_total", "cache", name, "event", invalidations);
    times("bellwether_load_duration_seconds", "cache", name, "result", stats.load_times.by_name());
    times("bellwether_wait_duration_seconds", "cache", name, "place", stats.wait_times.by_name());
    let cache = [("cache", name)];
    publish_histogram("bellwether_flight_callers", &cache, &stats.flight_callers);
    publish_histogram("bellwether_notice_lag_seconds", &cache, &stats.notice_lag);
}

/// Publishes the statistics of a `MemoryStore` under this name.
pub fn publish_memory_store(name: &str, stats: &MemoryStats) {
    let MemoryStats { entries, bytes, evictions } = *stats;
    set("bellwether_store_entries", "store", name, entries);
    set("bellwether_store_bytes", "store", name, bytes);
    count("bellwether_store_evictions_total", name, evictions);
}

/// Publishes the statistics of a `RedisStore` under this name.
#[cfg(feature = "redis")]
pub fn publish_redis_store(name: &str, stats: &crate::RedisStats) {
    each(
        "bellwether_store_operations_total",
        "store",
        name,
        "operation",
        stats.operations.by_name(),
    );
    each("bellwether_store_errors_total", "store", name, "error", stats.errors.by_name());
    let operation_times = stats.operation_times.by_name();
    let duration = "bellwether_store_operation_duration_seconds";
    times(duration, "store", name, "operation", operation_times);
    set("bellwether_store_up", "store", name, u64::from(!stats.is_down));
    count("bellwether_store_connects_total", name, stats.connects);
    count("bellwether_store_outages_total", name, stats.outages);
    count("bellwether_store_pushes_total", name, stats.pushes);
    count("bellwether_store_unreadable_total", name, stats.unreadable);
    let replay = &stats.replay;
    set("bellwether_store_invalidations_pending", "store", name, replay.pending);
    count("bellwether_store_invalidations_kept_total", name, replay.kept);
    count("bellwether_store_invalidations_replayed_total", name, replay.replayed);
    count("bellwether_store_invalidations_dropped_total", name, replay.dropped);
    count("bellwether_store_invalidations_reasserted_total", name, replay.reasserted);
    for (way, is_it) in stats.wake_ups.by_name() {
        let way = [("store", name), ("by", way)];
        gauge!("bellwether_store_wake_ups", labels(way)).set(f64::from(u8::from(is_it)));
    }
    stats.nodes.iter().for_each(|node| publish_node(name, node));
    if let Some(near) = &stats.near {
        count("bellwether_near_hits_total", name, near.hits);
        count("bellwether_near_evictions_total", name, near.evictions);
        set("bellwether_near_entries", "store", name, near.entries);
        set("bellwether_near_bytes", "store", name, near.bytes);
        let disconnected = near.disconnected.as_secs();
        count("bellwether_near_disconnected_seconds_total", name, disconnected);
    }
}

#[cfg(feature = "redis")]
fn publish_node(store: &str, stats: &crate::RedisNodeStats) {
    let node = [("store", store), ("node", &*stats.address)];
    gauge!("bellwether_store_node_up", labels(node)).set(f64::from(u8::from(!stats.is_down)));
    for (metric, count) in [
        ("bellwether_store_node_requests_total", stats.requests),
        ("bellwether_store_node_redirections_total", stats.redirections),
        ("bellwether_store_node_connects_total", stats.connects),
        ("bellwether_store_node_outages_total", stats.outages),
    ] {
        counter!(metric, labels(node)).absolute(count);
    }
    for (error, count) in stats.errors.by_name() {
        let [store, node] = node;
        let error = labels([store, node, ("error", error)]);
        counter!("bellwether_store_node_errors_total", error).absolute(count);
    }
}

#[cfg(feature = "redis")]
fn labels<const N: usize>(labels: [(&'static str, &str); N]) -> Vec<Label> {
    labels.into_iter().map(|(label, value)| Label::new(label, value.to_owned())).collect()
}

/// Publishes counters that differ in one label.
fn each(
    metric: &'static str,
    owner: &'static str,
    name: &str,
    label: &'static str,
    counts: impl Iterator<Item = (&'static str, u64)>,
) {
    for (value, count) in counts {
        counter!(metric, owner => name.to_owned(), label => value).absolute(count);
    }
}

/// Publishes histograms that differ in one label.
fn times(
    metric: &'static str,
    owner: &'static str,
    name: &str,
    label: &'static str,
    histograms: impl Iterator<Item = (&'static str, HistogramStats)>,
) {
    for (value, stats) in histograms {
        publish_histogram(metric, &[(owner, name), (label, value)], &stats);
    }
}

fn count(metric: &'static str, store: &str, count: u64) {
    counter!(metric, "store" => store.to_owned()).absolute(count);
}

fn set(metric: &'static str, owner: &'static str, name: &str, value: u64) {
    gauge!(metric, owner => name.to_owned()).set(value as f64);
}
