//! A shared HTTP cache as a layer: in front of axum routes, or of any `http` service.
//!
//! The [guide](mod@guide) says which of two layers to use, and how users, cookies and streams are
//! treated.
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::{Router, routing::get};
//! use bellwether::MemoryStore;
//! use bellwether_http::HttpCacheLayer;
//! use http::{Request, header};
//! # use axum::body::Body;
//! # use tower::ServiceExt;
//!
//! async fn news() -> ([(header::HeaderName, &'static str); 1], &'static str) {
//!     ([(header::CACHE_CONTROL, "max-age=60")], "nothing new")
//! }
//!
//! let layer = HttpCacheLayer::new(MemoryStore::new(10_000));
//! let app: Router = Router::new().route("/news", get(news)).layer(layer);
//!
//! # let ask = || Request::get("/news").body(Body::empty());
//! let first = app.clone().oneshot(ask()?).await?;
//! # let said = |answer: &http::Response<_>| answer.headers()["cache-status"].to_str().unwrap_or_default().to_owned();
//! // bellwether; fwd=uri-miss; fwd-status=200; stored; ttl=60
//! assert!(said(&first).starts_with("bellwether; fwd=uri-miss; fwd-status=200; stored"));
//! let second = app.oneshot(ask()?).await?;
//! assert!(said(&second).starts_with("bellwether; hit"));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "axum"))]
//! # fn main() {}
//! ```
//!
//! [`HttpCacheLayer::new`] follows what responses state (RFC 9111): their freshness lifetime,
//! whether they may be shared, and the request header fields by which they vary. For handlers that
//! state nothing use [`HttpCacheLayer::keyed`], where the program makes the key of each request:
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use axum::{Router, extract::Path, routing::get};
//! use bellwether::MemoryStore;
//! use bellwether_http::{HttpCacheLayer, RequestKey};
//! # use axum::body::Body;
//! # use tower::ServiceExt;
//!
//! async fn item(Path((warehouse, sku)): Path<(String, u64)>) -> String {
//!     format!("item {sku} of {warehouse}") // or a query
//! }
//!
//! let key = RequestKey::template("catalog/{warehouse}/{sku}")?.query(["currency"]);
//! let layer = HttpCacheLayer::keyed(MemoryStore::new(10_000), key.clone())
//!     .ttl(Duration::from_secs(60))
//!     .stale_if_error(Duration::from_secs(600))
//!     .max_entry_bytes(64 * 1024)?;
//! let cache = layer.handle();
//! let app: Router = Router::new().route("/{warehouse}/{sku}", get(item).layer(layer));
//!
//! # let request = http::Request::get("/north/42").body(Body::empty())?;
//! # assert_eq!(app.oneshot(request).await?.status(), 200);
//! // After the item has changed. `currency` does not occur in the requests.
//! let item = key.fill(&[("warehouse", &"north"), ("sku", &42)])?;
//! cache.invalidate(&item.key()).await?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "axum"))]
//! # fn main() {}
//! ```
//!
//! # How requests are answered
//! - **GET**: by a stored response, or by one load that all waiters share. The request to the origin
//!   has no conditions of a single caller; it has those that validate the stored response. Each
//!   caller gets the full response, or 304 if it has that already.
//! - **HEAD**, and **GET with `Range`**: by a stored response, or by the origin. The response of the
//!   origin is not stored.
//! - **Other methods**: by the origin. If an unsafe request succeeds, the stored responses of its
//!   target are removed, by `http` and by `https`, [even if its client leaves](mod@guide#invalidation). With keys of your own, the response under the key
//!   of this very request is removed, [and no other](RequestKey#changes). The groups that
//!   `Cache-Group-Invalidation` of the response names are [invalidated](mod@guide#groups-of-responses) too.
//! - **Private responses** (a response that may not be shared) pass through as they come. As soon as
//!   the head of a response says so, its waiters ask the origin for themselves, concurrently. Other
//!   responses are read to their end first, so that a truncated one is never stored.
//! - **Large and slow responses** pass through too: those above
//!   [`max_entry_bytes`](HttpCacheLayer::max_entry_bytes), and those that are not complete within
//!   [`collect_within`](HttpCacheLayer::collect_within) after their head. The caller gets what was
//!   read, and the rest as it comes. So a stream without an end delays its first byte by that time
//!   at most.
//! - **Targets with private responses**: after such responses to two requests in a row, later
//!   requests for that target are not coalesced. They get a stored response, or ask the origin: at
//!   most as many at once as there were such responses in a row. This ends with the first response
//!   that may be shared, or after [`not_kept_for`](HttpCacheLayer::not_kept_for) without a private
//!   one. Requests with [credentials](HttpCacheLayer::credentials) are counted separately. Requests
//!   without credentials are still coalesced after a private response to a request with them.
//! - **Cookies**: a request with `Cookie` shares only a response that says `public` or `s-maxage`, or
//!   that states its freshness lifetime ([`HttpCacheLayer::needs_public_with_cookies`]). A guessed
//!   lifetime does not suffice.
//! - **`Connection`**: if it names a field that is not about the connection, the request bypasses the
//!   cache as it is, because the next hop may remove that field.
//! - **Variants** (`Vary`): each process stores at most 64 per target. One more evicts one that is
//!   stale, one that was never used, or else the least used one.
//! - **Never fresh**: a response with a validator and no freshness lifetime passes through to its
//!   caller, and a copy is stored for validation. If it says `public`, all waiters get it.
//! - **Errors**: a request may have caused the error that it gets, so only its own caller gets it.
//!   The waiters of each process ask the origin once more, with the request of one of them, and share
//!   that response. Processes ask one after another. If that response is an error too, up to 16 waiters
//!   per target ask for themselves, and only the others share it. A waiter with credentials never gets
//!   the error of another request.
//!   This holds for a 5xx without caching directives, if the request had neither `Authorization`
//!   nor `Cookie`. With keys of your own it also holds for a 4xx that is not stored.
//! - **Failures**: an error counts as a failure if there is a stale fallback, and always with keys of
//!   your own. From the second failure in a row on, later callers share it
//!   ([`HttpCacheLayer::failure_windows`]). An origin that does not answer fails in the same way. No
//!   status counts as a failure of the whole origin, because a 503 may be a limit for one client. A
//!   refused connection or a missing route does, because no request was sent.
//! - **Responses of the cache itself**: 502 (the origin gave no response), 503 (a bound is reached,
//!   the store failed, or the origin failed a moment ago) and 504 (it took too long).
//!
//! Every response says in `Cache-Status` (RFC 9211) how it came about, and has its
//! [`CacheStatus`](bellwether::CacheStatus) as an extension.
//!
//! - **Upgrades**: an offer of `h2c` is ignored, and the response is cached like any other. The layer
//!   removes `Upgrade` and `HTTP2-Settings` from the request. A request that offers another protocol
//!   (a WebSocket) bypasses the cache unchanged, with its fields and extensions. Its response bypasses
//!   it, too. So what hyper has put there to upgrade the connection arrives on both sides.
//! - **304** of the origin is passed only to a client that has sent `If-None-Match` or
//!   `If-Modified-Since`. Without such a field a 304 has no meaning, so it counts as a failure of the
//!   origin: the client gets a stale fallback, or 502.
//! - **102, 103** (Early Hints) of the origin do not arrive: a [`tower::Service`] returns one response
//!   to a request, and hyper's server sends no interim ones for it. Clients get the final response.
//!
//! # Where to put it
//! The key is the host and the URI as the layer sees it, after middleware above it has rewritten
//! them. If middleware puts the tenant into the path, tenants share nothing. The prefix that
//! [`Router::nest`] takes off is part of the key: with the feature `axum` the layer knows it, by the
//! pattern of the nested path and the parameters of the route. So two nested routers never share
//! responses, even if middleware rewrites the path before, within or between them. To
//! [invalidate](HttpHandle::invalidate), pass that prefix with the rewritten path behind it.
//!
//! The layer does not know what other services take off the path. Put it above them, or state the
//! target by [`target_uri`](HttpCacheLayer::target_uri). The same holds for a nested router without
//! the feature `axum`. A request bypasses the cache if its prefix is uncertain: a parameter is not
//! UTF-8, or a parameter name occurs twice. So does a request over HTTP/2 whose URI middleware has
//! replaced by a path: its host is uncertain.
//!
//! A response that depends on more than the URI, and does not say so in `Vary`, must not be stored.
//! That holds for everything below the layer. So put middleware that reads a session above the
//! layer, and compression below it (compression says `Vary: accept-encoding`).
//!
//! [`Router::nest`]: https://docs.rs/axum/0.8/axum/struct.Router.html#method.nest

mod answer;
mod answered_fetch;
mod bypass;
mod cache_request;
mod caching_rules;
mod codec;
mod exchange;
mod expiry;
mod fetch;
mod handle;
mod layer;
mod purge;
mod refusal;
mod report;
mod request_key;
#[cfg(feature = "axum")]
mod router;
mod rules;
mod service;
mod shared;
mod tag_fields;
mod target;
mod target_gates;
mod unsafe_request;
mod variants;
mod vary_index;

#[doc = include_str!("guide.md")]
pub mod guide {}

pub use caching_rules::{KeyedRules, Rfc9111Rules};
pub use handle::HttpHandle;
pub use layer::HttpCacheLayer;
pub use purge::{Purge, PurgeFuture, PurgeLayer};
pub use request_key::RequestKey;
#[cfg(feature = "axum")]
pub use router::CacheRejection;
pub use service::{HttpCache, HttpResponseFuture};
pub use tag_fields::{group_tags, surrogate_tag};
