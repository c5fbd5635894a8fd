//! Metrics: publishes [statistics](crate::stats) through the [`metrics`](metrics_facade) facade, to
//! whatever recorder the program has installed.
//!
//! Nothing is counted here. Each call publishes a snapshot: counters and gauges as absolute values, and
//! of histograms what came since the last call. So nothing is lost or counted twice if the recorder
//! comes late. Call [`publish`] in the handler that renders the metrics, or in a task every ten
//! seconds.
//!
//! Give the recorder the bounds of the histograms, [`HistogramStats::SECONDS`] for those whose names
//! end with `_seconds`, [`HistogramStats::AGES`] for `stale_age_seconds`, and [`HistogramStats::CALLERS`] for
//! `flight_callers`. Then it has the same counts
//! as the snapshot. (For `metrics-exporter-prometheus`, that is
//! `PrometheusBuilder::set_buckets_for_metric`; without buckets, it makes summaries.) The values that
//! it gets are not the single ones, but add up to their sum.
//!
//! ```
//! use bellwether::{Cache, MemoryStore, metrics};
//!
//! let store = MemoryStore::new(10_000);
//! let items: Cache<u64, u64> = Cache::builder("item", store.clone()).coalesce_only().build()?;
//!
//! let scrape = move || {
//!     metrics::publish(&items);
//!     metrics::publish(&store);
//!     // then render, for example `PrometheusHandle::render`
//! };
//! scrape();
//! # Ok::<_, bellwether::ConfigError>(())
//! ```
//!
//! The folder `observability` of the repository has a dashboard for Grafana and alert rules for
//! Prometheus, by these names.
//!
//! # Names
//! All begin with `bellwether_`. Labels have few values, which are known before, but for the addresses
//! of servers: keys, tags and texts of errors are never labels. The values of `cache` and `store` are their
//! names: give each cache and each store one of its own, since two of one name hide each other.
//!
//! | metric | type | labels | what it is |
//! |---|---|---|---|
//! | `requests_total` | counter | `cache`, `outcome`, `detail` | [`RequestStats`](crate::stats::RequestStats): `hit_local` is `outcome="hit", detail="local"` |
//! | `loads_started_total` | counter | `cache`, `why` | [`LoadStats`](crate::stats::LoadStats) |
//! | `loads_running` | gauge | `cache` | loads that have started and not ended |
//! | `loads_queued` | gauge | `cache` | [`CurrentStats`](crate::stats::CurrentStats): flights that wait because as many loads are under way as may be |
//! | `flights`, `waiters` | gauge | `cache` | the same: keys that are loaded or waited for, and the callers that wait |
//! | `failing_keys` | gauge | `cache` | the same: keys whose last loads have failed |
//! | `wakes_total` | counter | `cache`, `by` | [`WakeStats`](crate::stats::WakeStats) |
//! | `leases_total` | counter | `cache`, `event` | [`LeaseStats`](crate::stats::LeaseStats) |
//! | `commits_total` | counter | `cache`, `result` | [`CommitStats`](crate::stats::CommitStats) |
//! | `undecodable_total` | counter | `cache` | stored answers that could not be decoded, each a miss |
//! | `refreshes_total` | counter | `cache`, `result` | [`RefreshStats`](crate::stats::RefreshStats) |
//! | `refreshed_values_total` | counter | `cache`, `value` | [`AuditStats`](crate::stats::AuditStats): `changed` and `unchanged` |
//! | `audits_total` | counter | `cache`, `result` | the same: `confirmed`, `stale_served` and `undecided` |
//! | `shadow_total` | counter | `cache`, `result` | the same: `would_hit`, `would_miss` and `would_be_wrong` |
//! | `stale_age_seconds` | histogram | `cache` | how long ago the values were stored that were found to be wrong |
//! | `refused_total` | counter | `cache`, `limit` | [`LimitStats`](crate::stats::LimitStats) |
//! | `invalidations_total` | counter | `cache`, `event` | [`InvalidationStats`](crate::stats::InvalidationStats) |
//! | `load_duration_seconds` | histogram | `cache`, `result` | [`LoadTimeStats`](crate::stats::LoadTimeStats): how many loads have ended, and how long they took |
//! | `wait_duration_seconds` | histogram | `cache`, `place` | [`WaitTimeStats`](crate::stats::WaitTimeStats): how long callers waited for the load that answered them, `here` or `elsewhere` |
//! | `flight_callers` | histogram | `cache` | how many callers each flight had: the size of the stampedes that were held back |
//! | `notice_lag_seconds` | histogram | `cache` | how long ago the load of another process had ended when its waiters here noticed |
//! | `store_entries`, `store_bytes` | gauge | `store` | [`MemoryStats`](crate::stats::MemoryStats) |
//! | `store_evictions_total` | counter | `store` | the same |
//!
//! Those of a `RedisStore` are at `bellwether_redis::RedisStats`, those of locks at
//! `bellwether_lock::LockStats`.

use std::collections::HashMap;
use std::ptr;
use std::sync::{LazyLock, Mutex};

use metrics_facade::{Key, Label, Level, Metadata, Recorder, Unit, with_recorder};

use crate::locked::locked;
use crate::stats::{HistogramStats, MetricKind, MetricRow, MetricTable, MetricValue, StatsSource};

/// Publishes the statistics of a cache, a store or a set of locks, under its name. It also tells the
/// recorder what each metric is: a text and a unit.
///
/// Histograms of one name must come from one source: snapshots that are older than the last one are
/// ignored.
pub fn publish<S: StatsSource>(source: &S) {
    let (owner, stats) = (Label::new(S::Stats::OWNER, source.name().to_owned()), source.stats());
    for metric in S::Stats::METRICS {
        let exported = metric.prometheus_name();
        with_recorder(|recorder| describe(recorder, metric, exported.clone()));
        metric.for_each(&stats, |labels, value| {
            let label =
                |(label, value): &(&'static str, &str)| Label::new(*label, (*value).to_owned());
            let labels = [owner.clone()].into_iter().chain(labels.iter().map(label));
            let key = Key::from_parts(exported.clone(), labels.collect::<Vec<_>>());
            with_recorder(|recorder| match (metric.kind, value) {
                (_, MetricValue::Histogram(stats)) => record(recorder, key, &stats),
                (MetricKind::Counter, MetricValue::Number(count)) => {
                    recorder.register_counter(&key, &METADATA).absolute(count);
                }
                (_, MetricValue::Number(value)) => {
                    recorder.register_gauge(&key, &METADATA).set(value as f64);
                }
            });
        });
    }
}

fn describe<T>(recorder: &dyn Recorder, metric: &MetricRow<T>, name: String) {
    let unit = match metric.unit {
        "s" => Unit::Seconds,
        "By" => Unit::Bytes,
        _ => Unit::Count,
    };
    let describe = match metric.kind {
        MetricKind::Counter => Recorder::describe_counter,
        MetricKind::Gauge => Recorder::describe_gauge,
        MetricKind::Histogram => Recorder::describe_histogram,
    };
    describe(recorder, name.into(), Some(unit), metric.text.into());
}

/// The `metrics` facade takes values of histograms and no counts. So each call records the
/// [samples](HistogramStats::samples) of what came since the last one. What came before a recorder
/// was installed is recorded by the first call after that.
fn record(recorder: &dyn Recorder, key: Key, stats: &HistogramStats) {
    let histogram = recorder.register_histogram(&key, &METADATA);
    for (value, count) in unpublished(recorder, key, stats).samples() {
        histogram.record_many(value, usize::try_from(count).unwrap_or(usize::MAX));
    }
}

/// What this recorder has not been given yet.
fn unpublished(recorder: &dyn Recorder, key: Key, stats: &HistogramStats) -> HistogramStats {
    // Before a recorder is installed, there is one that ignores everything. What was published to
    // that one must not be missing in the other.
    let recorder = ptr::from_ref(recorder).cast::<()>().addr();
    let mut published = locked(&PUBLISHED);
    let none = HistogramStats::none(stats.bounds);
    published.entry((recorder, key)).or_insert(none).advance(stats)
}

/// What was published last: for each series, by the address of its recorder.
type Published = HashMap<(usize, Key), HistogramStats>;

/// Held for one operation on the map. There are as many series as the program publishes.
static PUBLISHED: LazyLock<Mutex<Published>> = LazyLock::new(Mutex::default);

static METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use metrics_facade::{
        Counter, Gauge, Histogram, HistogramFn, KeyName, SharedString, with_local_recorder,
    };

    use super::*;

    /// The values of all histograms.
    #[derive(Default)]
    struct Values(Arc<Recorded>);

    #[derive(Default)]
    struct Recorded(Mutex<Vec<f64>>);

    impl Values {
        fn recorded(&self) -> Vec<f64> {
            self.0.0.lock().unwrap().clone()
        }
    }

    impl HistogramFn for Recorded {
        fn record(&self, value: f64) {
            self.0.lock().unwrap().push(value);
        }
    }

    impl Recorder for Values {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(Arc::clone(&self.0))
        }
    }

    fn snapshot(buckets: &[(usize, u64, f64)]) -> HistogramStats {
        let mut stats = HistogramStats::default();
        for (bucket, count, sum) in buckets {
            (stats.counts[*bucket], stats.sums[*bucket]) = (*count, *sum);
        }
        stats
    }

    #[test]
    fn a_recorder_that_comes_late_gets_everything_and_each_value_once() {
        let publish = |stats| {
            let key = Key::from_name("late");
            with_recorder(|recorder| record(recorder, key, &stats));
        };
        publish(snapshot(&[(2, 3, 0.006)]));
        let values = Values::default();
        with_local_recorder(&values, || {
            publish(snapshot(&[(2, 3, 0.006)]));
            publish(snapshot(&[(2, 3, 0.006)]));
        });
        assert_eq!(values.recorded().len(), 3);
        let sum: f64 = values.recorded().iter().sum();
        assert!((sum - 0.006).abs() < 1e-9, "{sum}");
        with_local_recorder(&values, || {
            publish(snapshot(&[(2, 3, 0.006), (9, 2, 0.9)]));
            publish(snapshot(&[(2, 3, 0.006), (9, 1, 0.4)]));
        });
        assert_eq!(values.recorded().len(), 5, "an older snapshot adds nothing");
        assert!(values.recorded()[3..].iter().all(|value| (0.25..=0.5).contains(value)));
    }
}
