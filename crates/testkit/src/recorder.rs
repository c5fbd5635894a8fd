//! A recorder of the `metrics` facade that keeps what is published.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use bellwether::stats::{MetricTable, StatsSource};
use metrics_facade::atomics::AtomicU64;
use metrics_facade::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// Every counter and gauge, by its name and labels; and of every histogram, how many values it has.
#[derive(Debug, Default)]
pub struct Published(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Published {
    /// A counter, or the number of values of a histogram, by name and labels as in
    /// `loads cache=one why=miss`.
    pub fn value(&self, name: &str) -> u64 {
        let cells = self.0.lock().unwrap();
        cells.get(name).unwrap_or_else(|| panic!("no {name}")).load(SeqCst)
    }

    /// A gauge, in the same way.
    pub fn gauge(&self, name: &str) -> f64 {
        f64::from_bits(self.value(name))
    }

    /// How many metrics there are.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn cell(&self, key: &Key) -> Arc<AtomicU64> {
        let labels = key.labels().map(|label| format!("{}={}", label.key(), label.value()));
        let name = format!("{} {}", key.name(), labels.collect::<Vec<_>>().join(" "));
        let mut cells = self.0.lock().unwrap();
        Arc::clone(cells.entry(name).or_insert_with(|| Arc::new(AtomicU64::new(0))))
    }
}

/// Statistics under a name, as their source would give them.
#[derive(Clone, Debug)]
pub struct Snapshot<T>(pub &'static str, pub T);

impl<T: MetricTable + Clone> StatsSource for Snapshot<T> {
    type Stats = T;

    fn name(&self) -> &str {
        self.0
    }

    fn stats(&self) -> T {
        self.1.clone()
    }
}

/// Counts the values of a histogram.
struct Values(Arc<AtomicU64>);

impl HistogramFn for Values {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Recorder for Published {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Values(self.cell(key))))
    }
}
