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
//!
//! Those of a `RedisStore` are in `bellwether_redis::metrics`, those of locks in `bellwether_lock::metrics`.

mod describe;
mod histograms;

use metrics_facade::{Label, counter, gauge};

pub use self::describe::{describe, describe_metrics};
pub use self::histograms::publish_histogram;

use crate::stats::{CacheStats, CurrentStats, HistogramStats, MemoryStats};

/// Publishes the statistics of a layer or cache under this name.
pub fn publish_cache(name: &str, stats: &CacheStats) {
    let CacheStats { requests, loads, wakes, leases, commits, refreshes, refused, .. } = stats;
    for (field, count) in requests.by_name() {
        let (outcome, detail) = field.split_once('_').unwrap_or((field, ""));
        let labels = [("cache", name), ("outcome", outcome), ("detail", detail)];
        publish_counter("bellwether_requests_total", &labels, count);
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

/// Publishes a counter with these labels, as an absolute value.
pub fn publish_counter(metric: &'static str, labels: &[(&'static str, &str)], count: u64) {
    counter!(metric, owned(labels)).absolute(count);
}

/// Publishes a gauge with these labels.
pub fn publish_gauge(metric: &'static str, labels: &[(&'static str, &str)], value: f64) {
    gauge!(metric, owned(labels)).set(value);
}

fn owned(labels: &[(&'static str, &str)]) -> Vec<Label> {
    labels.iter().map(|(label, value)| Label::new(*label, (*value).to_owned())).collect()
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
        publish_counter(metric, &[(owner, name), (label, value)], count);
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
    publish_counter(metric, &[("store", store)], count);
}

fn set(metric: &'static str, owner: &'static str, name: &str, value: u64) {
    publish_gauge(metric, &[(owner, name)], value as f64);
}
