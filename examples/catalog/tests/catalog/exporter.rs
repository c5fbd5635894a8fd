//! A program in this process, as Prometheus sees it.

use std::future::ready;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use bellwether_testkit::exposition::Exposition;
use tokio::net::TcpListener;

/// Serves what `publish` publishes whenever it is asked for. Returns where.
pub(crate) async fn expose(publish: impl Fn() + Send + Sync + 'static) -> String {
    let exposition = Arc::new(Exposition::new());
    let publish = Arc::new(publish);
    let metrics = move || ready(exposition.render(&*publish));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let program = Router::new().route("/metrics", get(metrics));
    tokio::spawn(async { axum::serve(listener, program).await });
    address
}
