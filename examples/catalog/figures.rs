//! `/metrics` of a process: what its cache and the store have done, for Prometheus.

use bellwether::metrics::publish;
use bellwether::stats::HistogramStats;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_facade::{Unit, counter, describe_counter};

use crate::Fault;
use crate::shop::Shop;
use crate::way::Way;

/// Queries at the database: with bellwether, as many as its loads.
const QUERIES: &str = "catalog_queries_total";

/// Renders all metrics of this process.
#[derive(Clone)]
pub(crate) struct Figures(PrometheusHandle);

impl Figures {
    /// Makes the recorder that all metrics of this process go to.
    pub(crate) fn install() -> Result<Self, Fault> {
        let handle = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &HistogramStats::SECONDS)?
            .set_buckets_for_metric(Matcher::Suffix("_callers".into()), &HistogramStats::CALLERS)?
            .install_recorder()?;
        describe_counter!(QUERIES, Unit::Count, "Queries that were begun at the database.");
        Ok(Self(handle))
    }

    /// All metrics at this moment, in the text format of Prometheus.
    pub(crate) fn render(&self, shop: &Shop) -> String {
        publish(&shop.products);
        (shop.publish_store)();
        shop.follower.iter().for_each(publish);
        for way in Way::ALL {
            counter!(QUERIES, "way" => way.name()).absolute(shop.database(way).queries());
        }
        self.0.run_upkeep();
        self.0.render()
    }
}
