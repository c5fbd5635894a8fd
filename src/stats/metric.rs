//! Metrics: for each kind of statistics one table, which all exporters read.

use std::fmt;

use super::histogram::HistogramStats;

/// Statistics that exporters show as metrics: [`CacheStats`](super::CacheStats), and those of stores and of
/// locks.
///
/// `bellwether::metrics` (feature `metrics`) publishes them through the `metrics` facade, and
/// `bellwether-opentelemetry` as instruments.
pub trait MetricTable: Sized + 'static {
    /// The label that says whose statistics these are, such as `cache`. Its value is the
    /// [name](StatsSource::name) of their source.
    const OWNER: &'static str;

    /// One row for each metric.
    #[doc(hidden)]
    const METRICS: &'static [MetricRow<Self>];
}

/// What has statistics under a name: a cache, a store, a set of locks.
pub trait StatsSource {
    /// Its statistics.
    type Stats: MetricTable;

    /// Its name, which exporters show beside its statistics. Two of one name hide each other.
    fn name(&self) -> &str;

    /// What it has done in this process.
    fn stats(&self) -> Self::Stats;
}

/// Makes a type with a method `stats` a [`StatsSource`], by the expression of its name.
#[doc(hidden)]
#[macro_export]
macro_rules! stats_source {
    (
        $Type:ident $(<$($parameter:ident),+>)? $(where $bounded:ident: $bound:path)?
        => $Stats:ty, |$it:ident| $name:expr
    ) => {
        impl $(<$($parameter),+>)? $crate::stats::StatsSource for $Type $(<$($parameter),+>)?
        $(where $bounded: $bound)?
        {
            type Stats = $Stats;

            fn name(&self) -> &str {
                let $it = self;
                $name
            }

            fn stats(&self) -> $Stats {
                self.stats()
            }
        }
    };
}

/// One metric: what it is, and how it is read.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "`metric_table` makes them in other crates, too")]
pub struct MetricRow<T> {
    /// How its values change.
    pub kind: MetricKind,
    /// Its name for OpenTelemetry, such as `bellwether.requests`.
    pub name: &'static str,
    /// What its values count, as OpenTelemetry has it: `s`, `By`, or things in braces.
    pub unit: &'static str,
    /// What it is: a sentence.
    pub text: &'static str,
    /// Gives its values in a snapshot.
    pub read: fn(&T, &mut MetricValues<'_>),
}

impl<T> MetricRow<T> {
    /// Its name for Prometheus, such as `bellwether_requests_total`.
    pub fn prometheus_name(&self) -> String {
        let name = self.name.replace('.', "_");
        let unit = if self.unit == "s" { "_seconds" } else { "" };
        let end = if self.kind == MetricKind::Counter { "_total" } else { "" };
        format!("{name}{unit}{end}")
    }

    /// Calls a function with each value in a snapshot, and the labels in which it differs from the
    /// others.
    pub fn for_each(&self, stats: &T, mut take: impl FnMut(&[(&'static str, &str)], MetricValue)) {
        (self.read)(stats, &mut MetricValues(&mut take));
    }
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

/// A value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "it is handed on at once, and never kept")]
#[non_exhaustive]
pub enum MetricValue {
    /// Of a counter or a gauge.
    Number(u64),
    /// Of a histogram.
    Histogram(HistogramStats),
}

impl MetricValue {
    /// How many events it counts.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Histogram(histogram) => histogram.count(),
        }
    }
}

impl From<u64> for MetricValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<HistogramStats> for MetricValue {
    fn from(histogram: HistogramStats) -> Self {
        Self::Histogram(histogram)
    }
}

/// Takes the values of a metric.
pub struct MetricValues<'a>(&'a mut TakeValue<'a>);

type TakeValue<'a> = dyn FnMut(&[(&'static str, &str)], MetricValue) + 'a;

impl MetricValues<'_> {
    /// The only value.
    pub fn one(&mut self, value: impl Into<MetricValue>) {
        self.labelled(&[], value);
    }

    /// Values that differ in one label.
    pub fn each<V: Into<MetricValue>>(
        &mut self,
        label: &'static str,
        values: impl IntoIterator<Item = (&'static str, V)>,
    ) {
        values.into_iter().for_each(|(name, value)| self.labelled(&[(label, name)], value));
    }

    /// One of several values, which differ in these labels.
    pub fn labelled(&mut self, labels: &[(&'static str, &str)], value: impl Into<MetricValue>) {
        (self.0)(labels, value.into());
    }
}

impl fmt::Debug for MetricValues<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricValues").finish_non_exhaustive()
    }
}

/// Makes the [table of metrics](crate::stats::MetricTable) of a kind of statistics: the label of their
/// owner, and for each metric its kind, name, unit, text and values.
///
/// ```
/// use bellwether::stats::MetricTable;
///
/// struct PoolStats {
///     opened: u64,
///     idle: u64,
/// }
///
/// bellwether::metric_table! { PoolStats, "pool":
///     Counter "pool.opened" "{connection}" "Connections that were opened."
///         = |it, to| to.one(it.opened);
///     Gauge "pool.idle" "{connection}" "Connections that wait for use." = |it, to| to.one(it.idle);
/// }
///
/// assert_eq!(PoolStats::METRICS[0].prometheus_name(), "pool_opened_total");
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! metric_table {
    ($Stats:ty, $owner:literal:
        $( $kind:ident $name:literal $unit:literal $text:literal = $read:expr; )+
    ) => {
        impl $crate::stats::MetricTable for $Stats {
            const OWNER: &'static str = $owner;
            const METRICS: &'static [$crate::stats::MetricRow<Self>] = &[$(
                $crate::stats::MetricRow {
                    kind: $crate::stats::MetricKind::$kind,
                    name: $name, unit: $unit, text: $text, read: $read,
                },
            )+];
        }
    };
}
