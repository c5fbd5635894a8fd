//! Metrics in the text format of Prometheus, as a program exposes them.

use std::fmt;

use bellwether::stats::HistogramStats;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};
use metrics_facade::with_local_recorder;

/// A recorder that renders what is published to it, with the bounds of bellwether's histograms.
pub struct Exposition(PrometheusRecorder);

impl Exposition {
    /// A recorder that has nothing yet.
    pub fn new() -> Self {
        let bounds: [(_, &[f64]); 3] = [
            ("_age_seconds", &HistogramStats::AGES),
            ("_seconds", &HistogramStats::SECONDS),
            ("_callers", &HistogramStats::CALLERS),
        ];
        let builder =
            bounds.into_iter().fold(PrometheusBuilder::new(), |builder, (end, bounds)| {
                let metrics = Matcher::Suffix(end.to_owned());
                builder.set_buckets_for_metric(metrics, bounds).expect("there are bounds")
            });
        Self(builder.build_recorder())
    }

    /// All metrics, with what `publish` publishes now.
    pub fn render(&self, publish: impl FnOnce()) -> String {
        with_local_recorder(&self.0, publish);
        self.0.handle().run_upkeep();
        self.0.handle().render()
    }
}

impl fmt::Debug for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposition").finish_non_exhaustive()
    }
}

/// The sum of all series of a metric whose labels contain these, for example
/// `outcome="hit"`. Panics if there is none.
pub fn sum_of(text: &str, metric: &str, labels: &str) -> f64 {
    let mut series = text.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        let of_metric = name.strip_prefix(metric)?;
        let is_it = of_metric.is_empty() || of_metric.starts_with('{');
        (is_it && of_metric.contains(labels)).then(|| value.parse::<f64>().expect("a number"))
    });
    let first = series.next().unwrap_or_else(|| panic!("no {metric}{{{labels}}} in {text}"));
    series.fold(first, |sum, value| sum + value)
}
