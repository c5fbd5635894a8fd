//! A shared HTTP cache as a layer, in front of axum routes or of any `http` service.
//!
//! Requests that miss the same page together cause one request to its handler, in any number of
//! processes.
//!
//! ```text
//! cargo add bellwether
//! cargo add bellwether-http --features axum
//! ```
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::{Router, http::header::CACHE_CONTROL, response::IntoResponse, routing::get};
//! use bellwether::MemoryStore;
//! use bellwether_http::HttpCacheLayer;
//! # use axum::{body::Body, http::{Request, Response}};
//! # use tower::ServiceExt;
//!
//! async fn news() -> impl IntoResponse {
//!     ([(CACHE_CONTROL, "max-age=60, stale-while-revalidate=600")], "nothing new")
//! }
//!
//! let layer = HttpCacheLayer::builder(MemoryStore::new(10_000)).build()?; // or a RedisStore
//! let app: Router = Router::new().route("/news", get(news)).layer(layer);
//!
//! # let ask = || Request::get("/news").body(Body::empty());
//! # let said = |answer: &Response<_>| answer.headers()["cache-status"].to_str().unwrap_or_default().to_owned();
//! let first = app.clone().oneshot(ask()?).await?;
//! assert!(said(&first).starts_with("bellwether; fwd=uri-miss; fwd-status=200; stored"));
//! let second = app.oneshot(ask()?).await?;
//! assert!(said(&second).starts_with("bellwether; hit"));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "axum"))]
//! # fn main() {}
//! ```
//!
//! Before you use it:
//!
//! - **A response with `max-age` is shared, also with requests that have cookies.** Send `private` for
//!   pages of single users, or set [`HttpCacheLayerBuilder::needs_public_with_cookies`].
//! - **Authenticate requests above the layer.** A stored response goes to its callers without a call of
//!   what is below.
//!
//! [`HttpCacheLayer::keyed`] takes key and lifetimes from your program, in place of `Cache-Control`. The
//! [guide](mod@guide) has the rest. With the feature `axum` (0.8), handlers return the errors of a
//! [`Cache`](bellwether::Cache) as `CacheRejection`, by `?`.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer;
mod answered_fetch;
mod bearer_token;
mod bypass;
mod cache_request;
mod caching_rules;
mod codec;
mod exchange;
mod fetch;
mod handle;
mod layer;
mod layer_state;
mod purge;
mod refusal;
mod report;
mod request_key;
mod retry_pool;
#[cfg(feature = "axum")]
mod router;
mod rules;
mod service;
mod stored_response;
mod tag_fields;
mod target;
mod target_gates;
mod unsafe_request;
mod variants;
mod vary_index;

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide.md")]
pub mod guide {
    #[doc = include_str!("guide/links.md")]
    #[doc = include_str!("guide/invalidation.md")]
    pub mod invalidation {}
}

pub use caching_rules::{KeyedRules, Rfc9111Rules};
pub use handle::HttpHandle;
pub use layer::{HttpCacheLayer, HttpCacheLayerBuilder};
pub use request_key::RequestKey;
#[cfg(feature = "axum")]
pub use router::CacheRejection;
pub use service::{HttpCache, HttpResponseFuture};

#[cfg(test)]
mod tests;
