//! What each instrument shows: the texts of the metrics with the same figures.

use bellwether::stats::{METRICS, MetricDescription, MetricKind};
#[cfg(feature = "lock")]
use bellwether_lock::LockStats;

/// What an instrument of this kind, name and unit shows.
pub(crate) fn described(kind: MetricKind, name: &str, unit: &str) -> &'static str {
    let name = metric_name(kind, name, unit);
    let mut metrics = METRICS.iter().chain(OF_LOCKS);
    let metric = metrics.find(|metric| metric.kind == kind && metric.name == name);
    metric.map_or("", |metric| metric.text)
}

/// The name that exporters to Prometheus give an instrument.
fn metric_name(kind: MetricKind, name: &str, unit: &str) -> String {
    let name = name.replace('.', "_");
    let unit = if unit == "s" { "_seconds" } else { "" };
    let end = if kind == MetricKind::Counter { "_total" } else { "" };
    format!("{name}{unit}{end}")
}

#[cfg(feature = "lock")]
const OF_LOCKS: &[MetricDescription] = LockStats::METRICS;
#[cfg(not(feature = "lock"))]
const OF_LOCKS: &[MetricDescription] = &[];
