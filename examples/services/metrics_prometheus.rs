//! A service that publishes the statistics of its cache for Prometheus. It needs no server:
//!
//! ```text
//! cargo run -p bellwether-examples --bin metrics_prometheus
//! curl localhost:3000/squares/7
//! curl localhost:3000/metrics
//! ```

use std::convert::Infallible;
use std::env;
use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use bellwether::metrics::publish;
use bellwether::stats::HistogramStats;
use bellwether::{Cache, MemoryStore};
use bellwether_http::CacheRejection;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init(); // says why a load fails
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &HistogramStats::SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_callers".into()), &HistogramStats::CALLERS)?
        .install_recorder()?;
    let squares: Cache<u64, u64> =
        Cache::builder("square", MemoryStore::new(10_000)).ttl(Duration::from_secs(60)).build()?;
    let published = squares.clone();
    let metrics = async move || {
        publish(&published);
        recorder.run_upkeep();
        recorder.render()
    };
    let app = Router::new()
        .route("/squares/{number}", get(square))
        .route("/metrics", get(metrics))
        .with_state(squares);
    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

async fn square(
    State(squares): State<Cache<u64, u64>>,
    Path(number): Path<u64>,
) -> Result<String, CacheRejection> {
    let load = async move || Ok::<_, Infallible>(number.wrapping_mul(number));
    Ok(squares.get_or_load(number, load).await?.to_string())
}
