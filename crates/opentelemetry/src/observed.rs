//! What is observed: the sources of snapshots of one kind, by name, and the instruments that show them.

use std::sync::{Arc, Mutex};

use bellwether::adapter::locked;
use bellwether::stats::{HistogramStats, MetricKind, MetricRow, MetricTable, MetricValue};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Histogram, Meter};

/// Sources of snapshots of one kind, which grow while the SDK reads them.
///
/// OpenTelemetry has observable counters and gauges, and no observable histograms. So a histogram
/// gets the [samples](HistogramStats::samples) of what came since the last collection, while the
/// SDK collects: it reads the observable instruments before it reads the others.
pub(crate) struct Observed<T: 'static> {
    /// Held to add one source or to copy all, never while a snapshot is read.
    sources: Arc<Mutex<Vec<Arc<NamedSource<T>>>>>,
    /// Whenever a snapshot is read, for whichever instrument, these get what is new in it. A view
    /// may drop any of the instruments.
    histograms: Arc<[SampledHistogram<T>]>,
}

/// A metric that is a histogram, and its instrument.
type SampledHistogram<T> = (&'static MetricRow<T>, Histogram<f64>);

/// A name, what gives the snapshots under it, and what the histograms have of them.
struct NamedSource<T> {
    name: KeyValue,
    read: Box<dyn Fn() -> T + Send + Sync>,
    /// One for each value of each histogram, in their order: there are always as many. Held to find
    /// what is new, not while that is recorded: several readers may collect at the same time.
    recorded: Mutex<Vec<HistogramStats>>,
}

impl<T: MetricTable> Observed<T> {
    /// The instruments of these statistics. Prometheus adds a unit in braces to no name.
    pub(crate) fn new(meter: &Meter) -> Self {
        let of_kind = |kind| T::METRICS.iter().filter(move |metric| metric.kind == kind);
        let histograms = of_kind(MetricKind::Histogram).map(|metric| {
            let bounds = match metric.unit {
                "s" if metric.name.ends_with(".age") => HistogramStats::AGES,
                "s" => HistogramStats::SECONDS,
                _ => HistogramStats::CALLERS,
            };
            let histogram = meter.f64_histogram(metric.name).with_unit(metric.unit);
            let histogram = histogram.with_description(metric.text);
            (metric, histogram.with_boundaries(bounds.to_vec()).build())
        });
        let observed = Self { sources: Arc::default(), histograms: histograms.collect() };
        for metric in of_kind(MetricKind::Counter) {
            let this = observed.clone();
            let counter = meter.u64_observable_counter(metric.name).with_unit(metric.unit);
            let counter = counter.with_description(metric.text);
            counter.with_callback(move |to| this.observe(to, metric)).build();
        }
        for metric in of_kind(MetricKind::Gauge) {
            let this = observed.clone();
            let gauge = meter.u64_observable_gauge(metric.name).with_unit(metric.unit);
            let gauge = gauge.with_description(metric.text);
            gauge.with_callback(move |to| this.observe(to, metric)).build();
        }
        observed
    }

    pub(crate) fn add(&self, name: KeyValue, read: impl Fn() -> T + Send + Sync + 'static) {
        let source =
            Arc::new(NamedSource { name, read: Box::new(read), recorded: Mutex::default() });
        locked(&self.sources).push(source);
    }

    /// Observes the values of each source.
    fn observe(&self, to: &dyn AsyncInstrument<u64>, metric: &MetricRow<T>) {
        let sources = locked(&self.sources).clone();
        for source in sources {
            let stats = (source.read)();
            source.record(&self.histograms, &stats);
            metric.for_each(&stats, |labels, value| {
                if let MetricValue::Number(number) = value {
                    to.observe(number, &source.attributes(labels));
                }
            });
        }
    }
}

impl<T> NamedSource<T> {
    fn attributes(&self, labels: &[(&'static str, &str)]) -> Vec<KeyValue> {
        let labels = labels.iter().map(|(label, value)| KeyValue::new(*label, (*value).to_owned()));
        [self.name.clone()].into_iter().chain(labels).collect()
    }

    /// Records what is new in a snapshot of this source.
    fn record(&self, histograms: &[SampledHistogram<T>], stats: &T) {
        let mut at = 0;
        for (metric, instrument) in histograms {
            metric.for_each(stats, |labels, value| {
                let MetricValue::Histogram(stats) = value else { return };
                let attributes = self.attributes(labels);
                for (value, count) in self.new_in(at, &stats).samples() {
                    (0..count).for_each(|_| instrument.record(value, &attributes));
                }
                at += 1;
            });
        }
    }

    /// What is new of the value at this place.
    fn new_in(&self, at: usize, stats: &HistogramStats) -> HistogramStats {
        let mut recorded = locked(&self.recorded);
        if recorded.len() == at {
            recorded.push(HistogramStats::none(stats.bounds));
        }
        recorded[at].advance(stats)
    }
}

impl<T> Clone for Observed<T> {
    fn clone(&self) -> Self {
        Self { sources: Arc::clone(&self.sources), histograms: Arc::clone(&self.histograms) }
    }
}
