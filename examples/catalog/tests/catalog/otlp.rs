//! `--otlp`: what a collector of OpenTelemetry gets.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use futures_util::future::join_all;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::time::sleep;

use crate::collector::Collector;
use crate::server::Catalog;

/// How often something is asked for that is to come about.
const ROUNDS: u32 = 200;

/// So that a test need not wait for the usual times, which are seconds.
const SOON: [&str; 2] = ["OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_METRIC_EXPORT_INTERVAL=200"];

/// A catalog that sends to a collector.
struct Shop {
    catalog: Catalog,
    collector: Collector,
    /// The next product that none has asked for.
    sku: AtomicU32,
}

impl Shop {
    async fn open() -> Self {
        let (collector, url) = Collector::serve().await;
        let catalog = Catalog::start_in(&SOON, &["--otlp", &url]);
        // So slow that callers find the load of another.
        catalog.post("/demo/slow?on=true", "").await;
        Self { catalog, collector, sku: AtomicU32::new(5_000) }
    }

    /// Callers ask for a product that none has asked for, until something has come about.
    async fn ask_until(&self, what: &str, holds: impl Fn(&Collector) -> bool) {
        for _ in 0..ROUNDS {
            let path = format!("/api/product/{}", self.sku.fetch_add(1, SeqCst));
            join_all((0..4).map(|_| self.catalog.get(&path))).await;
            sleep(Duration::from_millis(100)).await;
            if holds(&self.collector) {
                return;
            }
        }
        panic!("{what}: {:#?}", self.collector.metrics());
    }
}

/// The span that an identity of a trace and a span belongs to.
fn found<'a>(spans: &'a [Span], trace: &[u8], span: &[u8]) -> Option<&'a Span> {
    spans.iter().find(|it| it.trace_id == trace && it.span_id == span)
}

/// The names of the spans above a span, the nearest first.
fn above<'a>(spans: &'a [Span], span: &Span) -> Vec<&'a str> {
    let parent = |span: &Span| found(spans, &span.trace_id, &span.parent_span_id);
    let above = std::iter::successors(parent(span), |span| parent(span));
    above.map(|span| span.name.as_str()).collect()
}

/// Whether a request is linked to a span of this name, which is of another trace.
fn has_link_to(spans: &[Span], name: &str) -> bool {
    let mut requests = spans.iter().filter(|span| span.name == "request");
    requests.any(|request| {
        let links = request.links.iter().filter(|link| link.trace_id != request.trace_id);
        let mut linked = links.filter_map(|link| found(spans, &link.trace_id, &link.span_id));
        linked.any(|span| span.name == name)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_the_way_of_a_request_to_the_database() {
    let shop = Shop::open().await;
    let has_way = |collector: &Collector| {
        let spans = collector.spans();
        let mut queries = spans.iter().filter(|span| span.name == "query");
        queries.any(|query| above(&spans, query) == ["cache.load", "request"])
    };
    shop.ask_until("a query below a request", has_way).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_the_links_of_waiters_to_the_load() {
    let shop = Shop::open().await;
    let has_link = |collector: &Collector| has_link_to(&collector.spans(), "cache.load");
    shop.ask_until("a link to a load", has_link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_the_figures_by_their_names() {
    let shop = Shop::open().await;
    let names = [
        "bellwether.requests ({request})",
        "bellwether.loads.started ({load})",
        "bellwether.load.duration (s)",
        "bellwether.wait.duration (s)",
        "bellwether.flight.callers ({caller})",
        "bellwether.store.entries ({entry})",
    ];
    let has_all = |collector: &Collector| {
        let metrics = collector.metrics();
        names.iter().all(|name| metrics.get(*name).is_some_and(|value| *value > 0.0))
    };
    shop.ask_until("all figures", has_all).await;
}

#[tokio::test]
async fn without_a_collector_it_serves() {
    let catalog = Catalog::start_in(&SOON, &["--otlp", "http://127.0.0.1:9"]);
    assert!(catalog.get("/api/product/42").await.status.is_success());
}
