//! The values of metrics by name and labels, in the form of Prometheus: `name label=value ...`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use bellwether::stats::HistogramStats;
use metrics_facade::atomics::AtomicU64;
use metrics_facade::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, HistogramDataPoint, Metric, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};

/// Of a histogram, there is a value for each bucket, the number of its values, and their sum in
/// millionths.
pub(crate) type Values = BTreeMap<String, u64>;

/// What the SDK collects now, by the names that Prometheus gives it.
pub(crate) fn collected(provider: &SdkMeterProvider, exporter: &InMemoryMetricExporter) -> Values {
    exporter.reset();
    provider.force_flush().unwrap();
    let finished = exporter.get_finished_metrics().unwrap();
    let scopes = finished.iter().flat_map(|resource| resource.scope_metrics());
    scopes.flat_map(|scope| scope.metrics()).flat_map(points).collect()
}

/// What an exporter is told of a metric beside its values.
pub(crate) type Descriptions = BTreeMap<String, (Unit, String)>;

/// What the SDK exports of each instrument that has values now, by the name that Prometheus gives it.
pub(crate) fn exported(
    provider: &SdkMeterProvider,
    exporter: &InMemoryMetricExporter,
) -> Descriptions {
    exporter.reset();
    provider.force_flush().unwrap();
    let finished = exporter.get_finished_metrics().unwrap();
    let scopes = finished.iter().flat_map(|resource| resource.scope_metrics());
    let one = |metric: &Metric| {
        let unit = match metric.unit() {
            "s" => Unit::Seconds,
            "By" => Unit::Bytes,
            things if things.starts_with('{') && things.ends_with('}') => Unit::Count,
            other => panic!("{} has the unit {other:?}", metric.name()),
        };
        (metric_name(metric), (unit, metric.description().to_owned()))
    };
    scopes.flat_map(|scope| scope.metrics()).map(one).collect()
}

/// The names among those of the values, without what they end with for a histogram.
pub(crate) fn names(values: &Values) -> BTreeSet<String> {
    let names = values.keys().filter_map(|series| series.split(' ').next());
    let base = |name: &str| {
        let ends = ["_bucket", "_count", "_sum"];
        let base = ends.iter().find_map(|end| name.strip_suffix(end));
        base.unwrap_or(name).to_owned()
    };
    names.map(base).collect()
}

/// The name that Prometheus gives it.
fn metric_name(metric: &Metric) -> String {
    let mut name = metric.name().replace('.', "_");
    if metric.unit() == "s" {
        name += "_seconds";
    }
    if matches!(metric.data(), AggregatedMetrics::U64(MetricData::Sum(_))) {
        name += "_total";
    }
    name
}

fn points(metric: &Metric) -> Vec<(String, u64)> {
    let name = metric_name(metric);
    match metric.data() {
        AggregatedMetrics::U64(MetricData::Sum(sum)) => {
            assert!(sum.is_monotonic(), "{name}");
            let points = sum.data_points();
            points.map(|point| (series(&name, point.attributes()), point.value())).collect()
        }
        AggregatedMetrics::U64(MetricData::Gauge(gauge)) => {
            let points = gauge.data_points();
            points.map(|point| (series(&name, point.attributes()), point.value())).collect()
        }
        AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
            histogram.data_points().flat_map(|point| buckets(&name, point)).collect()
        }
        _ => panic!("{name} is none of these"),
    }
}

fn buckets(name: &str, point: &HistogramDataPoint<f64>) -> Vec<(String, u64)> {
    let labels = series("", point.attributes());
    let bounds: Vec<_> = point.bounds().collect();
    assert_eq!(bounds, bounds_of(name));
    let counts: Vec<_> = point.bucket_counts().collect();
    assert_eq!(point.count(), counts.iter().sum::<u64>());
    distribution(name, &labels, &counts, point.sum())
}

fn bounds_of(name: &str) -> &'static [f64] {
    match name {
        _ if name.ends_with("_age_seconds") => &HistogramStats::AGES,
        _ if name.ends_with("_seconds") => &HistogramStats::SECONDS,
        _ => &HistogramStats::CALLERS,
    }
}

fn distribution(name: &str, labels: &str, counts: &[u64], sum: f64) -> Vec<(String, u64)> {
    let bounds = bounds_of(name).iter().copied().chain([f64::INFINITY]);
    let buckets = bounds.zip(counts);
    let buckets =
        buckets.map(|(bound, count)| (format!("{name}_bucket le={bound}{labels}"), *count));
    let count = (format!("{name}_count{labels}"), counts.iter().sum());
    let sum = (format!("{name}_sum{labels}"), (sum * 1e6).round() as u64);
    buckets.chain([count, sum]).collect()
}

fn series<'a>(name: &str, attributes: impl Iterator<Item = &'a opentelemetry::KeyValue>) -> String {
    let labels = attributes.map(|label| format!(" {}={}", label.key, label.value));
    sorted(name, labels.collect())
}

fn sorted(name: &str, mut labels: Vec<String>) -> String {
    labels.sort();
    format!("{name}{}", labels.concat())
}

/// A recorder of the `metrics` facade.
#[derive(Default)]
pub(crate) struct Facade {
    counters: Cells<AtomicU64>,
    gauges: Cells<AtomicU64>,
    histograms: Cells<Recorded>,
    described: Mutex<Descriptions>,
}

/// By name and labels.
type Cells<T> = Mutex<BTreeMap<(String, String), Arc<T>>>;

/// The values of a histogram, in their order.
#[derive(Default)]
struct Recorded(Mutex<Vec<f64>>);

impl Facade {
    /// What `bellwether::metrics` publishes.
    pub(crate) fn publish(&self, publish: impl Fn()) -> Values {
        with_local_recorder(self, publish);
        let counters = each(&self.counters, |cell| cell.load(SeqCst));
        let gauges = each(&self.gauges, |cell| f64::from_bits(cell.load(SeqCst)) as u64);
        let values = counters
            .into_iter()
            .chain(gauges)
            .map(|((name, labels), value)| (format!("{name}{labels}"), value));
        let histograms = each(&self.histograms, |cell| cell.read());
        let histograms = histograms.into_iter().filter(|(_, values)| !values.is_empty());
        let histograms = histograms.flat_map(|((name, labels), values)| {
            let mut counts = vec![0; 16];
            let bounds = bounds_of(&name);
            values.iter().for_each(|it| counts[bounds.partition_point(|bound| bound < it)] += 1);
            distribution(&name, &labels, &counts, values.iter().sum())
        });
        values.chain(histograms).collect()
    }

    /// What it is told of metrics.
    pub(crate) fn described(&self, describe: impl Fn()) -> Descriptions {
        with_local_recorder(self, describe);
        self.described.lock().unwrap().clone()
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>, text: &SharedString) {
        let described = (unit.unwrap(), text.to_string());
        self.described.lock().unwrap().insert(name.as_str().to_owned(), described);
    }
}

fn each<T, V>(cells: &Cells<T>, read: impl Fn(&T) -> V) -> Vec<((String, String), V)> {
    let cells = cells.lock().unwrap();
    cells.iter().map(|(name, cell)| (name.clone(), read(cell))).collect()
}

fn cell<T: Default>(cells: &Cells<T>, key: &Key) -> Arc<T> {
    let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
    let name = (key.name().to_owned(), sorted("", labels.collect()));
    Arc::clone(cells.lock().unwrap().entry(name).or_default())
}

impl Recorded {
    fn read(&self) -> Vec<f64> {
        self.0.lock().unwrap().clone()
    }
}

impl HistogramFn for Recorded {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

impl Recorder for Facade {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, unit, &text);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, unit, &text);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, unit, &text);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(cell(&self.counters, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(cell(&self.gauges, key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(cell(&self.histograms, key))
    }
}
