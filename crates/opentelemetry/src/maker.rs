//! Makes the instruments of one kind of sources.

use bellwether::stats::MetricKind;
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use crate::described::described;
use crate::observed::Observed;
use crate::sampled::SampledHistogram;

/// Makes observable instruments that show all sources of one kind.
pub(crate) struct InstrumentMaker<'a, T> {
    meter: &'a Meter,
    sources: Observed<T>,
}

impl<'a, T: 'static> InstrumentMaker<'a, T> {
    pub(crate) fn new(meter: &'a Meter, histograms: Vec<SampledHistogram<T>>) -> Self {
        Self { meter, sources: Observed::new(histograms) }
    }

    /// The sources that the instruments show: none so far.
    pub(crate) fn into_sources(self) -> Observed<T> {
        self.sources
    }

    /// A counter with one value for each source. Prometheus adds a unit in braces to no name.
    pub(crate) fn counter(
        &self,
        name: &'static str,
        unit: &'static str,
        value: impl Fn(&T) -> Option<u64> + Send + Sync + 'static,
    ) {
        let sources = self.sources.clone();
        let builder = self.meter.u64_observable_counter(name).with_unit(unit);
        let builder = builder.with_description(described(MetricKind::Counter, name, unit));
        builder.with_callback(move |to| sources.one(to, &value)).build();
    }

    /// A counter with values that differ in these attributes.
    pub(crate) fn counters<const N: usize, I>(
        &self,
        name: &'static str,
        unit: &'static str,
        values: impl Fn(&T) -> I + Send + Sync + 'static,
    ) where
        I: IntoIterator<Item = ([KeyValue; N], u64)>,
    {
        let sources = self.sources.clone();
        let builder = self.meter.u64_observable_counter(name).with_unit(unit);
        let builder = builder.with_description(described(MetricKind::Counter, name, unit));
        builder.with_callback(move |to| sources.each(to, &values)).build();
    }

    /// A gauge with one value for each source.
    pub(crate) fn gauge(
        &self,
        name: &'static str,
        unit: &'static str,
        value: impl Fn(&T) -> Option<u64> + Send + Sync + 'static,
    ) {
        let sources = self.sources.clone();
        let builder = self.meter.u64_observable_gauge(name).with_unit(unit);
        let builder = builder.with_description(described(MetricKind::Gauge, name, unit));
        builder.with_callback(move |to| sources.one(to, &value)).build();
    }

    /// A gauge with values that differ in these attributes.
    #[cfg(feature = "redis")]
    pub(crate) fn gauges<const N: usize, I>(
        &self,
        name: &'static str,
        unit: &'static str,
        values: impl Fn(&T) -> I + Send + Sync + 'static,
    ) where
        I: IntoIterator<Item = ([KeyValue; N], u64)>,
    {
        let sources = self.sources.clone();
        let builder = self.meter.u64_observable_gauge(name).with_unit(unit);
        let builder = builder.with_description(described(MetricKind::Gauge, name, unit));
        builder.with_callback(move |to| sources.each(to, &values)).build();
    }
}

/// Counts that differ in one attribute.
pub(crate) fn labelled(
    label: &'static str,
    counts: impl Iterator<Item = (&'static str, u64)>,
) -> impl Iterator<Item = ([KeyValue; 1], u64)> {
    counts.map(move |(value, count)| ([KeyValue::new(label, value)], count))
}
