//! A shared HTTP cache as a layer: in front of axum routes, or of any `http` service.
//!
//! The [guide](mod@guide) says which of two layers to take, and what happens to users, cookies and streams.
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
//! [`HttpCacheLayer::new`] goes by what responses say (RFC 9111): for how long they are fresh, for
//! whom they are, and by which fields of a request they vary. For handlers that say nothing there
//! is [`HttpCacheLayer::keyed`], where the program says under which key responses are kept:
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use axum::{Router, extract::Path, routing::get};
//! use bellwether::{Key, MemoryStore};
//! use bellwether_http::{HttpCacheLayer, RequestKey};
//! # use axum::body::Body;
//! # use tower::ServiceExt;
//!
//! async fn item(Path((warehouse, sku)): Path<(String, u64)>) -> String {
//!     format!("item {sku} of {warehouse}") // or a query
//! }
//!
//! let key = RequestKey::template("catalog/{warehouse}/{sku}")?.query(["currency"]);
//! let layer = HttpCacheLayer::keyed(MemoryStore::new(10_000), key)
//!     .ttl(Duration::from_secs(60))
//!     .stale_if_error(Duration::from_secs(600))
//!     .max_entry_bytes(64 * 1024)?;
//! let cache = layer.handle();
//! let app: Router = Router::new().route("/{warehouse}/{sku}", get(item).layer(layer));
//!
//! # let request = http::Request::get("/north/42").body(Body::empty())?;
//! # assert_eq!(app.oneshot(request).await?.status(), 200);
//! // After the item has changed. Parts of a template are text, and `currency` was not there.
//! let key = Key::of("catalog/{warehouse}/{sku}").with("north").with("42");
//! cache.invalidate(&key.with("currency").with(0)).await?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "axum"))]
//! # fn main() {}
//! ```
//!
//! # What a request is answered by
//! - **GET**: what is kept, or one load that all waiters share. The origin is asked without
//!   the conditions of one caller, and with those that validate what is kept; each caller is given
//!   the whole, or 304 if that is what it has.
//! - **HEAD**, and **GET with `Range`**: what is kept, or the origin, whose answer is not kept.
//! - **Others**: the origin. If an unsafe one goes well, what is kept for its target is removed, by
//!   `http` and by `https`. With keys of your own, that is what is kept under the key that this very
//!   request makes, [and no other](RequestKey#changes).
//! - A response that may not be shared goes through as it comes. As soon as its head says so, the
//!   waiters ask the origin for themselves, all at once. Other responses are read to their end
//!   first, so that what breaks off is not kept.
//! - A response that is larger than is kept, or not complete within a bounded time after its head
//!   ([`HttpCacheLayer::collect_within`]), goes through too: what was read of it, and the rest as it
//!   comes. So a stream without an end holds its first byte for that time at most.
//! - After such answers to two requests in a row, later requests for that target are answered by
//!   what is kept for it, or go to the origin without waiting for each other: at most as many at
//!   once as there were such answers in a row. The first response that may be shared ends that, and
//!   so does a while without such an answer ([`HttpCacheLayer::not_kept_for`]). Requests with
//!   credentials (`Authorization`, `Cookie`) and those without are counted apart, and requests
//!   without never ask for themselves because of one answer to a request with credentials: they
//!   share a load of their own.
//! - A request with `Cookie` shares only a response that says `public` or `s-maxage`, or for how long
//!   it is fresh ([`HttpCacheLayer::needs_public_with_cookies`]). A guess never does for it.
//! - Fields that `Connection` names are removed before the key is made. If it names any that is not
//!   about the connection, the request goes to the origin alone: the next hop may remove that too.
//! - Of one target 64 variants (`Vary`) are kept by each process. One more takes the place of one
//!   that is stale, of one that was never used, or else of the one that is used least.
//! - A response that is never fresh goes to the caller that asked as it comes, and a copy is kept to
//!   be validated for the next; if it says `public`, it is given to all waiters.
//! - An error may be the fault of the request that it answers, so it is given to the caller whose
//!   request it was. The others that wait ask the origin once more, with a request of one of them,
//!   and share what that gives. This holds for an error (5xx) that says nothing else, if the request
//!   had neither `Authorization` nor `Cookie`; with keys of your own also for client errors (4xx)
//!   that are not kept. Such an error is not kept.
//! - An error counts as a failure if there is something better to be given in its place, and with
//!   keys of your own. Once a second one follows, later callers share it
//!   ([`HttpCacheLayer::failure_windows`]). An origin that gives no answer fails in the same way.
//!   No status is taken for a failure of the whole origin at once, since a 503 may be a limit on one
//!   client; a connection that is refused or has no route is, since no request was sent.
//! - What cannot be answered is answered by 502 (the origin gave no answer), 503 (there is no room,
//!   the store failed, or the origin failed a moment ago) or 504 (it took too long).
//!
//! Every answer says in `Cache-Status` (RFC 9211) how it came about.
//!
//! - **Upgrades**: an offer of `h2c` is ignored, and the answer is cached as any other: the layer
//!   takes `Upgrade` and `HTTP2-Settings` out of the request. A request that offers another protocol
//!   (a WebSocket) bypasses the cache whole, with its fields and extensions, and so does its answer:
//!   what hyper has put there to upgrade the connection arrives on both sides.
//! - **304** of the origin is given only to a client that has asked with `If-None-Match` or
//!   `If-Modified-Since`. Without such a field there is nothing that it could be about, so it counts
//!   as a failure of the origin: a stale answer is given instead, or 502.
//! - **102, 103** (Early Hints) of the origin do not arrive: a [`tower::Service`] gives one response
//!   to a request, and hyper's server sends no interim ones for it. Clients get the final response.
//!
//! # Where to put it
//! The key is the host and the URI as the layer sees it, behind what middleware above it has
//! written. Tenants that middleware tells apart by the path share nothing. What [`Router::nest`] takes
//! off belongs to the key: the feature `axum` lets the layer know the prefix, by the pattern of the
//! nested path and the parameters of the route. Two nested routers never share by accident, even if
//! middleware writes a path before, within or between them. The URI to
//! [invalidate](HttpHandle::invalidate) by is then that prefix with the written path behind it.
//!
//! Other services that take something off the path are not known to the layer: put it above them, or
//! say what the target is by [`target_uri`](HttpCacheLayer::target_uri). The same holds for a nested
//! router without the feature `axum`. A request bypasses the cache if its prefix cannot be told: a
//! parameter is not UTF-8, or a name stands for two of them.
//!
//! Responses that depend on more than the URI, and do not say so in `Vary`, must not be kept: that
//! holds for everything below the layer, so put what reads a session above it, and compression below
//! it (it says `Vary: accept-encoding`).
//!
//! [`Router::nest`]: https://docs.rs/axum/0.8/axum/struct.Router.html#method.nest

mod answer;
mod answered;
mod answered_fetch;
mod around;
mod asked;
mod derived_key;
mod earlier;
#[cfg(feature = "axum")]
mod extract;
mod fetch;
mod future;
mod handle;
mod kept;
mod layer;
mod mode;
#[cfg(feature = "axum")]
mod nested;
mod origin;
mod percent_encoding;
mod refusal;
mod report;
mod request_key;
mod rules;
mod service;
mod shared;
mod target;
mod variants;
mod visit;
mod way;

#[doc = include_str!("guide.md")]
pub mod guide {}

pub use future::HttpResponseFuture;
pub use handle::HttpHandle;
pub use layer::{CachingRules, HttpCacheLayer, KeyedRules, Rfc9111Rules};
pub use request_key::RequestKey;
pub use service::HttpCache;
