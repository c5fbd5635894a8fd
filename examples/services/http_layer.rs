//! An axum service behind a shared HTTP cache: handlers say by `Cache-Control` what is stored, and for how long.
//! It needs no server:
//!
//! ```text
//! cargo run -p bellwether-examples --bin http_layer
//! curl -i localhost:3000/items/1   # twice: see `Cache-Status` and `Age`
//! ```

use std::env;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::Path;
use axum::http::header::CACHE_CONTROL;
use axum::response::IntoResponse;
use axum::routing::get;
use bellwether::MemoryStore;
use bellwether_http::HttpCacheLayer;

static QUERIES: AtomicU64 = AtomicU64::new(0);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init(); // says why a load fails
    let cache = HttpCacheLayer::builder(MemoryStore::new(10_000)).build()?; // or a RedisStore
    let app =
        Router::new().route("/items/{id}", get(item)).route("/basket", get(basket)).layer(cache); // below what authenticates callers
    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

/// The same for everyone, for a minute; old answers do while a new one is loaded.
async fn item(Path(id): Path<u64>) -> impl IntoResponse {
    let query = QUERIES.fetch_add(1, Ordering::Relaxed) + 1;
    let lifetime = [(CACHE_CONTROL, "public, max-age=60, stale-while-revalidate=30")];
    (lifetime, format!("item {id}, by query {query}\n"))
}

/// Never stored, and never given to another client.
async fn basket() -> impl IntoResponse {
    ([(CACHE_CONTROL, "private, no-store")], "your basket\n")
}
