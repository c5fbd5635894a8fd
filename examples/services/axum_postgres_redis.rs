//! A shop on axum, PostgreSQL and Redis. Run as many of these processes as you like: a cold item costs one query.
//!
//! It needs a PostgreSQL and a Redis, and creates the table `items` if it is missing:
//!
//! ```text
//! DATABASE_URL=postgres://localhost/shop REDIS_URL=redis://127.0.0.1:6379 \
//!     cargo run -p bellwether-examples --bin axum_postgres_redis
//! curl -i localhost:3000/items/1
//! curl -i -X PUT localhost:3000/items/1/name -d 'blue jug'
//! ```

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use bellwether::{Cache, Changed};
use bellwether_http::CacheRejection;
use bellwether_redis::RedisStore;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::signal::unix::{SignalKind, signal};

struct App {
    db: PgPool,
    items: Cache<i64, Option<Item>>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Item {
    id: i64,
    name: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init(); // says why a load fails
    // As many connections as loads may be under way, and a limit below that of a load.
    let pool = PgPoolOptions::new().max_connections(20).acquire_timeout(Duration::from_secs(3));
    let db = pool.connect(&env::var("DATABASE_URL")?).await?;
    sqlx::raw_sql(SCHEMA).execute(&db).await?;
    let store = RedisStore::connect(&env::var("REDIS_URL")?, "shop").await?;
    let items = Cache::builder("item", store.clone())
        .ttl(Duration::from_secs(60))
        .stale_if_error(Duration::from_secs(600)) // an old item is better than an error
        .load_timeout(Duration::from_secs(5)) // bounds a load, and the wait for it
        .max_loads(20)
        .build()?;
    let app = Router::new()
        .route("/items/{id}", get(item))
        .route("/items/{id}/name", put(rename))
        .with_state(Arc::new(App { db, items }));
    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(stop()).await?;
    store.drain(Duration::from_secs(5)).await; // repeats invalidations that have failed
    Ok(())
}

/// Ends at SIGTERM, by which an orchestrator stops a process, and at Ctrl-C.
async fn stop() {
    let Ok(mut terminated) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

async fn item(
    State(app): State<Arc<App>>,
    Path(id): Path<i64>,
) -> Result<Response, CacheRejection> {
    let db = app.db.clone(); // the closure owns what it uses
    let load = async move || {
        let name = sqlx::query_scalar("SELECT name FROM items WHERE id = $1").bind(id);
        let name = name.fetch_optional(&db).await?;
        Ok::<_, sqlx::Error>(name.map(|name| Item { id, name }))
    };
    let item = app.items.get_or_load(id, load).await?;
    Ok(item
        .map_or_else(|| StatusCode::NOT_FOUND.into_response(), |item| Json(item).into_response()))
}

/// The change and the invalidation run to their end even if the client leaves.
async fn rename(
    State(app): State<Arc<App>>,
    Path(id): Path<i64>,
    name: String,
) -> Result<StatusCode, StatusCode> {
    let db = app.db.clone();
    let update = async move {
        let update = sqlx::query("UPDATE items SET name = $1 WHERE id = $2");
        update.bind(name).bind(id).execute(&db).await
    };
    match app.items.change(id, update).await {
        Ok(Changed::Invalidated(_)) => Ok(StatusCode::NO_CONTENT),
        // The change is made. The invalidation is repeated until Redis is back.
        Ok(Changed::Pending(_, _)) => Ok(StatusCode::ACCEPTED),
        Err(_) => Err(StatusCode::BAD_GATEWAY),
    }
}

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS items (id BIGINT PRIMARY KEY, name TEXT NOT NULL);
     INSERT INTO items VALUES (1, 'jug'), (2, 'cup') ON CONFLICT DO NOTHING;";
