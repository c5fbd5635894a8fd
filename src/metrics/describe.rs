//! Tells recorders what each metric is.

use metrics_facade::{Unit, describe_counter, describe_gauge, describe_histogram};

use crate::stats::{METRICS, MetricDescription, MetricKind, MetricUnit};

/// Tells the installed recorder what each metric is: a text and a unit, as [`METRICS`] has them.
/// Exporters show the text beside the values, as Prometheus does in its `HELP` lines.
///
/// Call it once, after the recorder was installed. Without a recorder it does nothing.
pub fn describe() {
    describe_metrics(METRICS);
}

/// As [`describe`], for other metrics.
pub fn describe_metrics(metrics: &[MetricDescription]) {
    for &MetricDescription { kind, name, unit, text } in metrics {
        let unit = match unit {
            MetricUnit::Count => Unit::Count,
            MetricUnit::Bytes => Unit::Bytes,
            MetricUnit::Seconds => Unit::Seconds,
        };
        match kind {
            MetricKind::Counter => describe_counter!(name, unit, text),
            MetricKind::Gauge => describe_gauge!(name, unit, text),
            MetricKind::Histogram => describe_histogram!(name, unit, text),
        }
    }
}
