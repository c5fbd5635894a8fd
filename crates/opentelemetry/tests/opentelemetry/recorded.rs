//! The values of metrics by name and labels, in the form of Prometheus: `name label=value ...`.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use metrics_facade::atomics::AtomicU64;
use metrics_facade::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};

pub(crate) type Values = BTreeMap<String, u64>;

/// What `bellwether::metrics` publishes.
pub(crate) fn published(publish: impl Fn()) -> Values {
    let recorder = Facade::default();
    with_local_recorder(&recorder, publish);
    let Facade { counters, gauges } = recorder;
    let counters = counters.into_inner().unwrap().into_iter();
    let counters = counters.map(|(name, cell)| (name, cell.load(SeqCst)));
    let gauges = gauges.into_inner().unwrap().into_iter();
    let gauges = gauges.map(|(name, cell)| (name, f64::from_bits(cell.load(SeqCst)) as u64));
    counters.chain(gauges).collect()
}

/// What the SDK collects now, by the names that Prometheus gives it.
pub(crate) fn collected(provider: &SdkMeterProvider, exporter: &InMemoryMetricExporter) -> Values {
    exporter.reset();
    provider.force_flush().unwrap();
    let finished = exporter.get_finished_metrics().unwrap();
    let scopes = finished.iter().flat_map(|resource| resource.scope_metrics());
    scopes.flat_map(|scope| scope.metrics()).flat_map(points).collect()
}

fn points(metric: &Metric) -> Vec<(String, u64)> {
    let AggregatedMetrics::U64(data) = metric.data() else { panic!("{} is no u64", metric.name()) };
    let mut name = metric.name().replace('.', "_");
    if metric.unit() == "s" {
        name += "_seconds";
    }
    match data {
        MetricData::Sum(sum) => {
            assert!(sum.is_monotonic(), "{name}");
            let points = sum.data_points();
            points
                .map(|point| (series(&format!("{name}_total"), point.attributes()), point.value()))
                .collect()
        }
        MetricData::Gauge(gauge) => {
            let points = gauge.data_points();
            points.map(|point| (series(&name, point.attributes()), point.value())).collect()
        }
        _ => panic!("{name} is neither a counter nor a gauge"),
    }
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
struct Facade {
    counters: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    gauges: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
}

fn cell(cells: &Mutex<BTreeMap<String, Arc<AtomicU64>>>, key: &Key) -> Arc<AtomicU64> {
    let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
    let name = sorted(key.name(), labels.collect());
    Arc::clone(cells.lock().unwrap().entry(name).or_default())
}

impl Recorder for Facade {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(cell(&self.counters, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(cell(&self.gauges, key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
