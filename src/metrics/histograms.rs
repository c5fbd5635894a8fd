//! Histograms as metrics.
//!
//! The `metrics` facade takes values of histograms and no counts. So each call publishes the
//! [samples](HistogramStats::samples) of what came since the last one. What came before a recorder
//! was installed is published by the first call after that.

use std::collections::HashMap;
use std::ptr;
use std::sync::{LazyLock, Mutex, PoisonError};

use metrics_facade::{Key, Label, Level, Metadata, Recorder, with_recorder};

use crate::stats::HistogramStats;

/// Publishes a histogram, with these labels. If the recorder has the same
/// [bounds](HistogramStats::bounds), it has the same counts.
///
/// A series must be published from snapshots of one histogram. Snapshots that are older than the
/// last one are ignored.
pub fn publish_histogram(
    metric: &'static str,
    labels: &[(&'static str, &str)],
    stats: &HistogramStats,
) {
    let label = |(name, value): &(&'static str, &str)| Label::new(*name, (*value).to_owned());
    let key = Key::from_parts(metric, labels.iter().map(label).collect::<Vec<_>>());
    with_recorder(|recorder| {
        let histogram = recorder.register_histogram(&key, &METADATA);
        for (value, count) in unpublished(recorder, key, stats).samples() {
            histogram.record_many(value, usize::try_from(count).unwrap_or(usize::MAX));
        }
    });
}

/// What this recorder has not been given yet.
fn unpublished(recorder: &dyn Recorder, key: Key, stats: &HistogramStats) -> HistogramStats {
    // Before a recorder is installed, there is one that ignores everything. What was published to
    // that one must not be missing in the other.
    let recorder = ptr::from_ref(recorder).cast::<()>().addr();
    let mut published = PUBLISHED.lock().unwrap_or_else(PoisonError::into_inner);
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
        Counter, Gauge, Histogram, HistogramFn, KeyName, SharedString, Unit, with_local_recorder,
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

    fn snapshot(counts: &[(usize, u64)], sum: f64) -> HistogramStats {
        let mut stats = HistogramStats { sum, ..HistogramStats::default() };
        counts.iter().for_each(|(bucket, count)| stats.counts[*bucket] = *count);
        stats
    }

    #[test]
    fn a_recorder_that_comes_late_gets_everything_and_each_value_once() {
        let publish = |stats| publish_histogram("late", &[("cache", "one")], &stats);
        publish(snapshot(&[(2, 3)], 0.006));
        let values = Values::default();
        with_local_recorder(&values, || {
            publish(snapshot(&[(2, 3)], 0.006));
            publish(snapshot(&[(2, 3)], 0.006));
        });
        assert_eq!(values.recorded().len(), 3);
        let sum: f64 = values.recorded().iter().sum();
        assert!((sum - 0.006).abs() < 1e-9, "{sum}");
        with_local_recorder(&values, || {
            publish(snapshot(&[(2, 3), (9, 2)], 0.906));
            publish(snapshot(&[(2, 3), (9, 1)], 0.406));
        });
        assert_eq!(values.recorded().len(), 5, "an older snapshot adds nothing");
        assert!(values.recorded()[3..].iter().all(|value| (0.25..=0.5).contains(value)));
    }
}
