//! `/metrics`: what the caches and their store have done, for Prometheus.

use bellwether::metrics::{describe, publish};
use bellwether::stats::{CacheStats, HistogramStats, MemoryStats};
use bellwether_redis::RedisStats;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_facade::{Unit, counter, describe_counter};

use crate::Fault;
use crate::demo::Demo;
use crate::way::Way;

/// Queries at the database: with bellwether, as many as its loads.
const QUERIES: &str = "catalog_queries_total";

/// Renders all metrics of this process.
#[derive(Clone)]
pub(crate) struct Figures(PrometheusHandle);

impl Figures {
    /// Makes the recorder that all metrics of this process go to.
    pub(crate) fn install() -> Result<Self, Fault> {
        let builder = PrometheusBuilder::new();
        let builder = builder
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &HistogramStats::SECONDS)?;
        let builder = builder
            .set_buckets_for_metric(Matcher::Suffix("_callers".into()), &HistogramStats::CALLERS)?;
        let handle = builder.install_recorder()?;
        describe::<CacheStats>();
        describe::<MemoryStats>();
        describe::<RedisStats>();
        describe_counter!(QUERIES, Unit::Count, "Queries that were begun at the database.");
        Ok(Self(handle))
    }

    /// All metrics at this moment, in the text format of Prometheus.
    pub(crate) fn render(&self, demo: &Demo) -> String {
        for (name, stats) in demo.shop.stats() {
            publish(name, &stats);
        }
        demo.shop.store.publish();
        for way in Way::ALL {
            counter!(QUERIES, "way" => way.name()).absolute(demo.shop.source.of(way).queries());
        }
        self.0.run_upkeep();
        self.0.render()
    }
}
