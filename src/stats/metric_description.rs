//! `MetricDescription`: what a metric is.

/// What a metric is, for exporters that show it beside the values, as Prometheus does in its `HELP`
/// lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetricDescription {
    /// How its values change.
    pub kind: MetricKind,
    /// Its name for Prometheus, such as `bellwether_requests_total`.
    pub name: &'static str,
    /// What its values count.
    pub unit: MetricUnit,
    /// What it is: a sentence.
    pub text: &'static str,
}

/// How the values of a metric change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It rises and falls.
    Gauge,
    /// It counts values in buckets.
    Histogram,
}

/// What the values of a metric count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricUnit {
    /// Things and events.
    Count,
    /// Bytes of memory.
    Bytes,
    /// Time, in seconds.
    Seconds,
}

impl MetricDescription {
    /// A counter.
    pub const fn counter(name: &'static str, unit: MetricUnit, text: &'static str) -> Self {
        Self { kind: MetricKind::Counter, name, unit, text }
    }

    /// A gauge.
    pub const fn gauge(name: &'static str, unit: MetricUnit, text: &'static str) -> Self {
        Self { kind: MetricKind::Gauge, name, unit, text }
    }

    /// A histogram.
    pub const fn histogram(name: &'static str, unit: MetricUnit, text: &'static str) -> Self {
        Self { kind: MetricKind::Histogram, name, unit, text }
    }
}
