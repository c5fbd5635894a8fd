//! `/metrics`: what the caches and their store have done, for Prometheus.

use bellwether::metrics::{describe, publish_cache};
use metrics::{Unit, counter, describe_counter};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::Fault;
use crate::demo::Demo;
use crate::way::Way;

/// The upper ends of the classes of times, in seconds.
const TIMES: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The upper ends of the classes of numbers of callers.
const CALLERS: [f64; 13] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0];

/// Queries at the database: with bellwether, as many as its loads.
const QUERIES: &str = "catalog_queries_total";

/// Renders all metrics of this process.
#[derive(Clone)]
pub(crate) struct Figures(PrometheusHandle);

impl Figures {
    /// Makes the recorder that all metrics of this process go to.
    pub(crate) fn install() -> Result<Self, Fault> {
        let builder = PrometheusBuilder::new();
        let builder = builder.set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &TIMES)?;
        let builder =
            builder.set_buckets_for_metric(Matcher::Suffix("_callers".into()), &CALLERS)?;
        let handle = builder.install_recorder()?;
        describe();
        describe_counter!(QUERIES, Unit::Count, "Queries that were begun at the database.");
        Ok(Self(handle))
    }

    /// All metrics at this moment, in the text format of Prometheus.
    pub(crate) fn render(&self, demo: &Demo) -> String {
        for (name, stats) in demo.shop.stats() {
            publish_cache(name, &stats);
        }
        demo.shop.store.publish();
        for way in Way::ALL {
            counter!(QUERIES, "way" => way.name()).absolute(demo.shop.source.of(way).queries());
        }
        self.0.run_upkeep();
        self.0.render()
    }
}
