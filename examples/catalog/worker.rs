//! One process of the shop: its products as JSON, its figures, and its part of what the page starts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Notify;

use crate::args::Args;
use crate::figures::Figures;
use crate::shop::Shop;
use crate::stats::Stats;
use crate::way::Way;
use crate::{Fault, listen, of_this_origin, traffic};

/// What fits into a column of every database.
const HIGHEST_PRICE_CENTS: i64 = 2_000_000_000;
/// Of a burst: each is a task that may hold a connection.
const MOST_CALLERS: usize = 10_000;
/// What a browser shows as text.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

type Shared = State<Arc<Shop>>;

#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    way: Way,
}

#[derive(Deserialize)]
struct NewPrice {
    price_cents: i64,
}

/// The state of the database.
#[derive(Deserialize)]
struct Forecast {
    slow: bool,
    broken: bool,
}

/// Callers of one product at the same instant.
#[derive(Deserialize)]
struct Crowd {
    way: Way,
    sku: u32,
    callers: usize,
}

#[derive(Serialize)]
struct Burst {
    queries: u64,
    errors: usize,
    /// How long each caller waited for an answer or an error.
    millis: Vec<f64>,
}

/// Runs until the process ends that has started this one.
pub(crate) async fn run(args: &Args) -> Result<(), Fault> {
    std::thread::spawn(|| {
        let _ = io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    let figures = Figures::install()?;
    let shop = Arc::new(Shop::open(args).await?);
    let listener = listen(args.listen).await?;
    tokio::spawn(traffic::run(Arc::clone(&shop)));
    println!("{}", listener.local_addr()?);
    Ok(axum::serve(listener, routes(shop, figures)).await?)
}

fn routes(shop: Arc<Shop>, figures: Figures) -> Router {
    let metrics =
        async move |State(shop): Shared| ([(header::CONTENT_TYPE, TEXT)], figures.render(&shop));
    Router::new()
        .route("/api/product/{sku}", get(product).post(set_price))
        .route("/stats", get(async |State(shop): Shared| Json(Stats::of(&shop))))
        .route("/metrics", get(metrics))
        .route("/queries/{sku}", get(queries))
        .route("/hold/{sku}", post(hold))
        .route("/forget/{sku}", post(forget))
        .route("/weather", post(change_weather))
        .route("/burst", post(burst))
        .layer(from_fn(of_this_origin))
        .with_state(shop)
}

async fn product(
    State(shop): Shared,
    Path(sku): Path<u32>,
    Query(Asked { way }): Query<Asked>,
) -> Response {
    match shop.product(way, sku).await {
        Ok((product, status)) => {
            let status = status.map(|status| [(CACHE_STATUS, status.to_string())]);
            let product = product.map(Json).ok_or_else(|| no_such_product(sku));
            (status, product).into_response()
        }
        Err(fault) => unavailable(&fault),
    }
}

async fn set_price(
    State(shop): Shared,
    Path(sku): Path<u32>,
    Json(new): Json<NewPrice>,
) -> Response {
    if !(0..=HIGHEST_PRICE_CENTS).contains(&new.price_cents) {
        let error = json!({ "error": "this is no price in cents" });
        return (StatusCode::UNPROCESSABLE_ENTITY, Json(error)).into_response();
    }
    match shop.set_price(sku, new.price_cents).await {
        Ok(true) => StatusCode::NO_CONTENT.into_response(),
        Ok(false) => no_such_product(sku).into_response(),
        Err(fault) => unavailable(&fault),
    }
}

/// Of each way, in the order of [`Way::ALL`].
async fn queries(State(shop): Shared, Path(sku): Path<u32>) -> Json<[u64; 3]> {
    Json(Way::ALL.map(|way| shop.database(way).queries_for(sku)))
}

async fn hold(State(shop): Shared, Path(sku): Path<u32>) {
    shop.weather.held.send_replace(sku);
}

async fn forget(State(shop): Shared, Path(sku): Path<u32>) {
    shop.forget(sku).await;
}

async fn change_weather(State(shop): Shared, Query(forecast): Query<Forecast>) {
    shop.weather.slow.store(forecast.slow, Ordering::Relaxed);
    shop.weather.broken.store(forecast.broken, Ordering::Relaxed);
}

async fn burst(State(shop): Shared, Query(crowd): Query<Crowd>) -> Response {
    let Crowd { way, sku, callers } = crowd;
    if callers > MOST_CALLERS {
        let error = json!({ "error": format!("at most {MOST_CALLERS} callers") });
        return (StatusCode::UNPROCESSABLE_ENTITY, Json(error)).into_response();
    }
    let before = shop.database(way).queries_for(sku);
    let start = Arc::new(Notify::new());
    let callers = (0..callers).map(|_| {
        let shop = Arc::clone(&shop);
        let start = Arc::clone(&start).notified_owned();
        tokio::spawn(async move {
            start.await;
            let began = Instant::now();
            let answer = shop.product(way, sku).await;
            (began.elapsed().as_secs_f64() * 1e3, answer.is_err())
        })
    });
    let callers: Vec<_> = callers.collect();
    start.notify_waiters();
    let answers: Vec<_> = join_all(callers).await.into_iter().flatten().collect();
    Json(Burst {
        queries: shop.database(way).queries_for(sku) - before,
        errors: answers.iter().filter(|(_, failed)| *failed).count(),
        millis: answers.into_iter().map(|(took, _)| took).collect(),
    })
    .into_response()
}

fn no_such_product(sku: u32) -> (StatusCode, Json<serde_json::Value>) {
    (StatusCode::NOT_FOUND, Json(json!({ "error": format!("there is no product {sku}") })))
}

fn unavailable(fault: &Fault) -> Response {
    let error = json!({ "error": fault.to_string() });
    (StatusCode::SERVICE_UNAVAILABLE, Json(error)).into_response()
}
