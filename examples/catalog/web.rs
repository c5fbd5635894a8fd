//! The catalog as JSON, the page, its figures and its buttons.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bellwether::CacheStatus;
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::IntervalStream;
use tracing::{Instrument, info_span};

use crate::Fault;
use crate::demo::{Demo, Switch};
use crate::figures::Figures;
use crate::page;
use crate::shop::Found;
use crate::source::Search;
use crate::stats::Stats;
use crate::way::Way;

/// What fits into a column of every database.
const HIGHEST_PRICE_CENTS: i64 = 2_000_000_000;
/// How often the page has new figures.
const PACE: Duration = Duration::from_millis(500);

/// What a browser shows as text.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

type Shared = State<Arc<Demo>>;

/// Whether a request is to be protected.
#[derive(Deserialize)]
struct Protection {
    protect: Option<String>,
}

#[derive(Deserialize)]
struct Searched {
    #[serde(default)]
    q: String,
    category: Option<u32>,
    #[serde(default = "first")]
    page: u32,
}

#[derive(Deserialize)]
struct NewPrice {
    price_cents: i64,
}

#[derive(Deserialize)]
struct Position {
    on: bool,
}

pub(crate) fn routes(demo: Arc<Demo>, figures: Figures) -> Router {
    let metrics =
        async move |State(demo): Shared| ([(header::CONTENT_TYPE, TEXT)], figures.render(&demo));
    Router::new()
        .route("/", get(async || Html(page::html())))
        .route("/api/categories", get(categories))
        .route("/api/product/{sku}", get(product).post(set_price))
        .route("/api/search", get(search))
        .route("/stats", get(async |State(demo): Shared| Json(Stats::of(&demo))))
        .route("/events", get(events))
        .route("/metrics", get(metrics))
        .route("/demo/burst", post(async |State(demo): Shared| Json(demo.burst().await)))
        .route("/demo/invalidate", post(invalidate))
        .route("/demo/{switch}", post(set))
        .layer(middleware::from_fn(traced))
        .with_state(demo)
}

/// Answers a request in a span, whose children are the loads and queries that it begins.
async fn traced(request: Request, next: Next) -> Response {
    let span = info_span!("request", method = %request.method(), path = request.uri().path());
    next.run(request).instrument(span).await
}

async fn product(
    State(demo): Shared,
    Path(sku): Path<u32>,
    Query(protection): Query<Protection>,
) -> Response {
    match demo.shop.product(protection.way(), sku).await {
        Ok(Found { value: Some(product), status }) => answer(product, status),
        Ok(Found { value: None, status }) => (head(status), no_such_product(sku)).into_response(),
        Err(fault) => unavailable(&fault),
    }
}

async fn search(
    State(demo): Shared,
    Query(searched): Query<Searched>,
    Query(protection): Query<Protection>,
) -> Response {
    let Searched { q, category, page } = searched;
    let search = Search { words: q, category, page: page.max(1) };
    match demo.shop.search(protection.way(), search).await {
        Ok(Found { value, status }) => answer(value, status),
        Err(fault) => unavailable(&fault),
    }
}

async fn categories(State(demo): Shared, Query(protection): Query<Protection>) -> Response {
    match demo.shop.categories(protection.way()).await {
        Ok(Found { value, status }) => answer(value, status),
        Err(fault) => unavailable(&fault),
    }
}

async fn set_price(
    State(demo): Shared,
    Path(sku): Path<u32>,
    Json(new): Json<NewPrice>,
) -> Response {
    if !(0..=HIGHEST_PRICE_CENTS).contains(&new.price_cents) {
        let error = json!({ "error": "this is no price in cents" });
        return (StatusCode::UNPROCESSABLE_ENTITY, Json(error)).into_response();
    }
    match demo.shop.set_price(sku, new.price_cents).await {
        Ok(true) => StatusCode::NO_CONTENT.into_response(),
        Ok(false) => no_such_product(sku),
        Err(fault) => unavailable(&fault),
    }
}

async fn invalidate(State(demo): Shared) -> Response {
    demo.invalidate()
        .await
        .map_or_else(|fault| unavailable(&fault), |done| Json(done).into_response())
}

async fn set(
    State(demo): Shared,
    Path(switch): Path<Switch>,
    Query(position): Query<Position>,
) -> Json<Stats> {
    demo.set(switch, position.on);
    Json(Stats::of(&demo))
}

/// The figures, again and again.
async fn events(State(demo): Shared) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let moments = IntervalStream::new(tokio::time::interval(PACE));
    Sse::new(moments.map(move |_| {
        let figures = serde_json::to_string(&Stats::of(&demo)).unwrap_or_default();
        Ok(Event::default().data(figures))
    }))
}

/// An answer, and in its head how it came about.
fn answer(value: impl Serialize, status: Option<CacheStatus>) -> Response {
    (head(status), Json(value)).into_response()
}

fn head(status: Option<CacheStatus>) -> Option<[(HeaderName, String); 1]> {
    status.map(|status| [(CACHE_STATUS, status.to_string())])
}

fn no_such_product(sku: u32) -> Response {
    let error = json!({ "error": format!("there is no product {sku}") });
    (StatusCode::NOT_FOUND, Json(error)).into_response()
}

fn unavailable(fault: &Fault) -> Response {
    let error = json!({ "error": fault.to_string() });
    (StatusCode::SERVICE_UNAVAILABLE, Json(error)).into_response()
}

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

fn first() -> u32 {
    1
}

impl Protection {
    fn way(&self) -> Way {
        Way::said(self.protect.as_deref())
    }
}
