//! A program with locks, as Prometheus sees it.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use bellwether::Key;
use bellwether::stats::HistogramStats;
use bellwether_lock::metrics::{describe, publish_locks};
use bellwether_lock::{LocalLock, Locks};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use metrics_facade::with_local_recorder;
use tokio::net::TcpListener;

/// Serves the metrics of a set of locks, of which one is taken whenever they are asked for. Returns
/// where.
pub(crate) async fn serve() -> String {
    let times = Matcher::Suffix("_seconds".into());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(times, &HistogramStats::SECONDS);
    let recorder = Arc::new(builder.expect("buckets").build_recorder());
    with_local_recorder(&*recorder, describe);
    let locks = Locks::new(LocalLock::new());
    let metrics = async move || {
        drop(locks.lock(&Key::of("order").with(1)).await);
        with_local_recorder(&*recorder, || publish_locks("orders", &locks.stats()));
        recorder.handle().render()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let program = Router::new().route("/metrics", get(metrics));
    tokio::spawn(async { axum::serve(listener, program).await });
    address
}
