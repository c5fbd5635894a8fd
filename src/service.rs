//! Tower: a cache in front of any Tower service.
//!
//! ```
//! use std::time::Duration;
//!
//! use bellwether::{Key, MemoryStore, ReadThroughLayer};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! #[derive(Clone, Copy)]
//! struct Sku(u64);
//!
//! async fn load_from_db(sku: Sku) -> Result<String, std::io::Error> {
//!     Ok(format!("item {}", sku.0))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layer = ReadThroughLayer::builder(MemoryStore::new(10_000), |sku: &Sku| {
//!     Key::of("item").with(sku.0)
//! })
//! .ttl(Duration::from_secs(60))
//! .build()?;
//! let cache = layer.handle();
//!
//! let mut catalog = ServiceBuilder::new().layer(layer).service(tower::service_fn(load_from_db));
//! assert_eq!(catalog.ready().await?.call(Sku(42)).await?, "item 42");
//!
//! // After the source has changed:
//! cache.invalidate(&Key::of("item").with(42)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A key function can return `None` to bypass the cache, the wait for another caller's load can be
//! bounded, and an answer can come with its status:
//!
//! ```
//! # use std::time::Duration;
//! # use bellwether::{CacheStatus, Key, MemoryStore, ReadThroughLayer, Wait, WhenAbandoned};
//! # use tower::{Layer, Service, ServiceExt};
//! # #[derive(Clone)]
//! # struct Page { path: String, preview: bool }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let render = tower::service_fn(async |page: Page| Ok::<_, std::io::Error>(page.path));
//! # let page = Page { path: "/".to_owned(), preview: false };
//! let layer = ReadThroughLayer::builder(MemoryStore::new(1_000), |page: &Page| {
//!     (!page.preview).then(|| Key::of("page").with(&page.path))
//! })
//! .ttl(Duration::from_secs(5))
//! .wait(Wait::at_most(Duration::from_millis(500)).then_load())
//! .lease(Duration::from_secs(2))
//! .when_abandoned(WhenAbandoned::Cancel)
//! .build()?;
//!
//! let (answer, status) = layer.layer(render).call(page).with_status().await;
//! assert_eq!(answer?, "/");
//! assert_eq!(status, CacheStatus::Led { stored: true });
//! assert_eq!(status.to_string(), "bellwether; fwd=miss; stored");
//! # Ok(())
//! # }
//! ```
//!
//! # Above and below
//! A retry belongs below the cache. Above, a thousand callers repeat the failure that they share:
//!
//! ```
//! # use std::{io, sync::{Arc, atomic::{AtomicU32, Ordering}}, time::Duration};
//! # use bellwether::{Key, MemoryStore, ReadThroughLayer};
//! # use futures_util::future::join_all;
//! # use tower::{ServiceBuilder, ServiceExt, service_fn};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let cache = ReadThroughLayer::builder(MemoryStore::new(10), |sku: &u64| Key::of("item").with(*sku));
//! # let cache = cache.ttl(Duration::from_secs(60)).build()?;
//! # let calls = Arc::new(AtomicU32::new(0));
//! # let counted = Arc::clone(&calls);
//! # let source = service_fn(move |sku: u64| {
//! #     let fails = counted.fetch_add(1, Ordering::Relaxed) < 2;
//! #     async move { if fails { Err(io::Error::other("busy")) } else { Ok(sku) } }
//! # });
//! let retried = service_fn(move |sku: u64| {
//!     let source = source.clone();
//!     async move {
//!         for _ in 0..2 {
//!             if let Ok(item) = source.clone().oneshot(sku).await {
//!                 return Ok(item);
//!             }
//!         }
//!         source.oneshot(sku).await
//!     }
//! });
//! let items = ServiceBuilder::new().layer(cache).service(retried); // the source fails twice
//! let answers = join_all((0..1_000).map(|_| items.clone().oneshot(42))).await;
//! assert!(answers.iter().all(Result::is_ok));
//! assert_eq!(calls.load(Ordering::Relaxed), 3);
//! # Ok(())
//! # }
//! ```
//!
//! # Off
//! With [`enabled(false)`](ReadThroughLayerBuilder::enabled), every call of a cache or layer stays as it is:
//!
//! - Requests load. The callers of this process share a load that began after they had asked, within the same
//!   limits, so a burst still reaches the source once. No failure is remembered. Nothing that is stored is
//!   read, and nothing is stored: the status is [`Disabled`](crate::BypassReason::Disabled), and `get` finds
//!   nothing. An HTTP layer forwards each request.
//! - Invalidations and expiries go to the store, because processes where the cache is on read it, and this one
//!   does when it is on again. A `put` invalidates its key, and returns `false`.
//!
//! To leave a layer out, tower's `option_layer` needs one type of error with and without it:
//!
//! ```
//! # use std::{convert::Infallible, time::Duration};
//! use bellwether::{BoxError, Key, MemoryStore, ReadThroughLayer};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! # for is_on in [true, false] {
//! let cache = ReadThroughLayer::builder(MemoryStore::new(10), |sku: &u64| Key::of("item").with(*sku))
//!     .ttl(Duration::from_secs(60))
//!     .build()?;
//! let cache = ServiceBuilder::new().map_err(BoxError::from).layer(cache).into_inner();
//! let items = ServiceBuilder::new()
//!     .option_layer(is_on.then_some(cache))
//!     .map_err(BoxError::from)
//!     .service(service_fn(async |sku: u64| Ok::<_, Infallible>(sku)));
//! assert_eq!(items.oneshot(42).await?, 42);
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! # In shadow mode
//! With [`shadow(true)`](ReadThroughLayerBuilder::shadow), requests load as if the cache were off, and get what is
//! loaded. The store is filled and invalidated as if it were on, and each load looks at what it would have
//! answered: [`would_hit`](crate::stats::AuditStats) and `would_miss` say what the cache would save.
//! `would_be_wrong` counts stored values that differ from the loaded one and are still there ten seconds later.
//!
//! # Audits
//! With [`audit(0.001)`](ReadThroughLayerBuilder::audit), one of 1,000 hits is loaded again in the background, as a
//! refresh with the same bounds. A value that differs replaces the stored one. If no invalidation follows within
//! ten seconds, a writer has not told the cache: [`stale_served`](crate::stats::AuditStats) counts it,
//! [`stale_ages`](crate::stats::CacheStats::stale_ages) has how old it was, and a warning in the log names the key,
//! as [`trace_keys`](ReadThroughLayerBuilder::trace_keys) allows. Writers that invalidate later than that, as by
//! [`expire_tag`](Handle::expire_tag) with a spread, and sources that read replicas that lag, look like such writers.
//! Values with a shorter ttl are compared too, but count as [`undecided`](crate::stats::AuditStats).

pub use crate::read_through::handle::Handle;
pub use crate::read_through::key_request::{IntoKeyRequest, KeyRequest};
pub use crate::read_through::layer::ReadThroughLayerBuilder;
pub use crate::read_through::service::ReadThrough;
