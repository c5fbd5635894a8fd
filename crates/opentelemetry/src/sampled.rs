//! Histograms of snapshots.
//!
//! OpenTelemetry has observable counters and gauges, and no observable histograms. So a histogram
//! gets the [samples](HistogramStats::samples) of what came since the last collection, while the
//! SDK collects: it reads the observable instruments before it reads the others.

use std::sync::{Mutex, PoisonError};

use bellwether::stats::{HistogramStats, MetricKind};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter};

use crate::described::described;

/// A histogram of a snapshot, and the attribute in which it differs from the others of its
/// instrument, if there are others.
pub(crate) type HistogramPart = (Option<KeyValue>, HistogramStats);

/// An instrument, and the histograms of a snapshot that it shows.
pub(crate) struct SampledHistogram<T> {
    instrument: Histogram<f64>,
    /// Always as many, in the same order.
    parts: fn(&T) -> Vec<HistogramPart>,
}

impl<T> SampledHistogram<T> {
    /// A histogram of times.
    pub(crate) fn of_times(
        meter: &Meter,
        name: &'static str,
        parts: fn(&T) -> Vec<HistogramPart>,
    ) -> Self {
        Self::new(meter, name, "s", &HistogramStats::SECONDS, parts)
    }

    pub(crate) fn new(
        meter: &Meter,
        name: &'static str,
        unit: &'static str,
        bounds: &[f64; 15],
        parts: fn(&T) -> Vec<HistogramPart>,
    ) -> Self {
        let builder = meter.f64_histogram(name).with_unit(unit);
        let builder = builder.with_description(described(MetricKind::Histogram, name, unit));
        Self { instrument: builder.with_boundaries(bounds.to_vec()).build(), parts }
    }
}

/// Histograms of one instrument that differ in one attribute.
pub(crate) fn parts(
    attribute: &'static str,
    histograms: impl Iterator<Item = (&'static str, HistogramStats)>,
) -> Vec<HistogramPart> {
    histograms.map(|(value, stats)| (Some(KeyValue::new(attribute, value)), stats)).collect()
}

/// What the histograms have of a source.
#[derive(Default)]
pub(crate) struct RecordedSamples(
    /// One for each part of each histogram, in their order. Held to find what is new, not while
    /// that is recorded: several readers may collect at the same time.
    Mutex<Vec<HistogramStats>>,
);

impl RecordedSamples {
    /// Records what is new in a snapshot of this source.
    pub(crate) fn record<T>(
        &self,
        histograms: &[SampledHistogram<T>],
        source: &KeyValue,
        stats: &T,
    ) {
        let mut at = 0;
        for SampledHistogram { instrument, parts } in histograms {
            for (attribute, stats) in parts(stats) {
                let attributes: Vec<_> = [source.clone()].into_iter().chain(attribute).collect();
                for (value, count) in self.new_in(at, &stats).samples() {
                    (0..count).for_each(|_| instrument.record(value, &attributes));
                }
                at += 1;
            }
        }
    }

    /// What is new of the part at this place.
    fn new_in(&self, at: usize, stats: &HistogramStats) -> HistogramStats {
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.len() == at {
            recorded.push(HistogramStats::none(stats.bounds));
        }
        recorded[at].advance(stats)
    }
}
