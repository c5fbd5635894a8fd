//! A service with axum and SQLite whose reads go through a cache, held in axum's `State`:
//! `cargo run -p bellwether-axum-sqlite`, then `curl -i localhost:3000/items/1`.

use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::HeaderName;
use axum::routing::{get, put};
use axum::{Json, Router};
use bellwether::{Cache, Cacheability, Changed, ConfigError, Error, MemoryStore};
use serde::{Deserialize, Serialize};
use sqlx::SqlitePool;
use sqlx::sqlite::SqlitePoolOptions;

/// What every request has: the database, and a cache for each type of value.
#[derive(Clone)]
struct Shop {
    database: SqlitePool,
    items: Cache<i64, Option<Item>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Item {
    sku: i64,
    name: String,
    price_cents: i64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("try: curl -i localhost:3000/items/1");
    println!("     curl -i 'localhost:3000/items?skus=1,2,7'");
    println!("     curl -i -X PUT localhost:3000/items/1/price -d 1250");
    axum::serve(listener, service(Shop::open(3).await?)).await?;
    Ok(())
}

fn service(shop: Shop) -> Router {
    Router::new()
        .route("/items/{sku}", get(item))
        .route("/items", get(page))
        .route("/items/{sku}/price", put(set_price))
        .with_state(shop)
}

impl Shop {
    /// A shop with so many items. Its database is in memory, so it has one connection.
    async fn open(items: i64) -> Result<Self, Box<dyn std::error::Error>> {
        let options = SqlitePoolOptions::new().max_connections(1).idle_timeout(None);
        let database = options.max_lifetime(None).connect("sqlite::memory:").await?;
        let create = "CREATE TABLE items (sku INTEGER PRIMARY KEY, name TEXT, price_cents INTEGER)";
        sqlx::query(create).execute(&database).await?;
        for sku in 1..=items {
            let insert = sqlx::query("INSERT INTO items VALUES (?, ?, ?)");
            insert.bind(sku).bind(format!("item {sku}")).bind(sku * 100).execute(&database).await?;
        }
        Ok(Self { database, items: cache()? })
    }
}

/// For several processes, give it a `RedisStore`: nothing else changes.
fn cache() -> Result<Cache<i64, Option<Item>>, ConfigError> {
    Cache::builder("item", MemoryStore::new(10_000))
        .ttl(Duration::from_secs(60))
        .stale_if_error(Duration::from_secs(600))
        .not_found_ttl(Duration::from_secs(5))
        .classify(|item: &Option<Item>| match item {
            Some(_) => Cacheability::Keep,
            None => Cacheability::NotFound,
        })
        .build()
}

/// One item. However many requests miss it together, there is one query.
async fn item(
    State(shop): State<Shop>,
    Path(sku): Path<i64>,
) -> Result<([(HeaderName, String); 1], Json<Item>), StatusCode> {
    let load = async move || select(&shop.database, vec![sku]).await.map(|mut found| found.pop());
    let (item, status) = shop.items.get_or_load(sku, load).with_status().await;
    let item = item.map_err(failed)?.ok_or(StatusCode::NOT_FOUND)?;
    Ok(([(HeaderName::from_static("cache-status"), status.to_string())], Json(item)))
}

/// The items that a page asks for, such as `1,2,7`.
#[derive(Deserialize)]
struct Wanted {
    skus: String,
}

/// Many items: one query loads those that are missing.
async fn page(
    State(shop): State<Shop>,
    Query(Wanted { skus }): Query<Wanted>,
) -> Result<Json<Vec<Item>>, StatusCode> {
    let skus: Result<Vec<i64>, _> = skus.split(',').map(str::parse).collect();
    let skus = skus.map_err(|_| StatusCode::BAD_REQUEST)?;
    let load = async move |skus: Vec<i64>| {
        let found = select(&shop.database, skus).await?;
        Ok(found
            .into_iter()
            .map(|item| (item.sku, item))
            .collect::<std::collections::HashMap<_, _>>())
    };
    let items = shop.items.get_or_load_many(skus, load).await;
    let items: Result<Vec<_>, Error<sqlx::Error>> = items.into_iter().collect();
    Ok(Json(items.map_err(failed)?.into_iter().flatten().collect()))
}

/// Changes the source first, and invalidates then: no request that starts later gets the old price.
async fn set_price(
    State(shop): State<Shop>,
    Path(sku): Path<i64>,
    price_cents: String,
) -> Result<StatusCode, StatusCode> {
    let price_cents: i64 = price_cents.trim().parse().map_err(|_| StatusCode::BAD_REQUEST)?;
    let update = async move {
        let update = sqlx::query("UPDATE items SET price_cents = ? WHERE sku = ?");
        update.bind(price_cents).bind(sku).execute(&shop.database).await
    };
    match shop.items.change(sku, update).await {
        // The store is down: the price has changed, and the old one may be served for a while.
        Ok(Changed::Pending(..)) => Ok(StatusCode::ACCEPTED),
        Ok(Changed::Invalidated(done)) if done.rows_affected() > 0 => Ok(StatusCode::NO_CONTENT),
        Ok(Changed::Invalidated(_)) => Err(StatusCode::NOT_FOUND),
        Err(_) => Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

async fn select(database: &SqlitePool, skus: Vec<i64>) -> Result<Vec<Item>, sqlx::Error> {
    let marks = vec!["?"; skus.len()].join(", ");
    let select = format!("SELECT sku, name, price_cents FROM items WHERE sku IN ({marks})");
    let mut query = sqlx::query_as(&select);
    for sku in skus {
        query = query.bind(sku);
    }
    let rows: Vec<(i64, String, i64)> = query.fetch_all(database).await?;
    let item = |(sku, name, price_cents)| Item { sku, name, price_cents };
    Ok(rows.into_iter().map(item).collect())
}

/// A failure of the database, or of the cache, such as a wait that ran out.
fn failed(error: Error<sqlx::Error>) -> StatusCode {
    eprintln!("a request failed: {error}");
    match error {
        Error::Load(_) => StatusCode::BAD_GATEWAY,
        Error::Cache(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures_util::future::join_all;
    use http::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn ask(service: &Router, method: &str, uri: &str, body: &str) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(uri).body(Body::from(body.to_owned()));
        let response = service.clone().oneshot(request.unwrap()).await.unwrap();
        let status = response.status();
        let told = response.headers().get("cache-status").map(|it| it.to_str().unwrap().to_owned());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, told.unwrap_or_default() + std::str::from_utf8(&body).unwrap())
    }

    #[tokio::test]
    async fn a_hundred_requests_for_one_item_are_one_load() {
        let service = service(Shop::open(3).await.unwrap());
        let answers = join_all((0..100).map(|_| ask(&service, "GET", "/items/1", ""))).await;
        let led = answers.iter().filter(|(_, told)| told.contains("fwd=miss; stored")).count();
        assert!(answers.iter().all(|(status, _)| *status == StatusCode::OK));
        assert_eq!(led, 1);
    }

    #[tokio::test]
    async fn a_changed_price_is_served_at_once_and_in_pages_too() {
        let service = service(Shop::open(3).await.unwrap());
        assert!(ask(&service, "GET", "/items/1", "").await.1.contains("\"price_cents\":100"));
        let changed = ask(&service, "PUT", "/items/1/price", "1250").await.0;
        assert_eq!(changed, StatusCode::NO_CONTENT);
        let page = ask(&service, "GET", "/items?skus=3,1,7", "").await.1;
        let page: Vec<Item> = serde_json::from_str(&page).unwrap();
        assert_eq!(page.iter().map(|item| item.price_cents).collect::<Vec<_>>(), [300, 1250]);
        assert_eq!(ask(&service, "GET", "/items/7", "").await.0, StatusCode::NOT_FOUND);
        assert_eq!(ask(&service, "PUT", "/items/7/price", "1").await.0, StatusCode::NOT_FOUND);
    }
}
