//! A cache in front of tonic services.
//!
//! The [guide](mod@guide) explains keys, statuses, deadlines and invalidation.
//!
//! You name the methods to cache. Everything else passes through unchanged, streams included.
//! Concurrent equal calls in any number of processes cause one call of the handler:
//!
//! ```
//! use std::time::Duration;
//!
//! use bellwether::MemoryStore;
//! use bellwether_grpc::{CachedMethod, GrpcCacheLayer};
//!
//! # fn layer() -> Result<(), bellwether::ConfigError> {
//! let store = MemoryStore::new(10_000); // or RedisStore::connect("redis://127.0.0.1:6379", "shop").await?
//! let product = CachedMethod::fresh_for(Duration::from_secs(60));
//! let layer = GrpcCacheLayer::new(store).method("/catalog.Catalog/Product", product)?;
//! # let catalog = tonic::service::Routes::default();
//!
//! let server = tonic::transport::Server::builder().layer(layer); // below what authenticates callers
//! # let _ = { let mut server = server; server.add_routes(catalog) };
//! # Ok(())
//! # }
//! ```
//!
//! For a single service use `layer.layer(CatalogServer::new(..))`, or a `ServiceBuilder`; the service
//! keeps its name. Each method has options of its own, and stored answers can be invalidated:
//!
//! ```
//! # use std::time::Duration;
//! # use bellwether::{MemoryStore, Wait};
//! # use bellwether_grpc::{CachedMethod, GrpcCacheLayer};
//! use prost::Message;
//!
//! #[derive(Clone, PartialEq, Message)]
//! struct ProductRequest {
//!     #[prost(uint64, tag = "1")]
//!     sku: u64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let product = CachedMethod::fresh_for(Duration::from_secs(60))
//!     .stale_while_revalidate(Duration::from_secs(60))
//!     .stale_if_error(Duration::from_secs(3_600))
//!     .status(tonic::Code::NotFound, Duration::from_secs(5))
//!     .metadata("x-tenant")?
//!     .ignoring_credentials(); // all permitted callers get the same answer
//! let layer = GrpcCacheLayer::new(MemoryStore::new(10_000))
//!     .method("/catalog.Catalog/Product", product)?
//!     .wait(Wait::at_most(Duration::from_millis(500)))
//!     .max_entry_bytes(4 * 1024 * 1024)?
//!     .show_status();
//! let cache = layer.handle();
//!
//! // After the source has changed:
//! let call = cache
//!     .call("/catalog.Catalog/Product", ProductRequest { sku: 42 }.encode_to_vec())?
//!     .metadata("x-tenant", "acme")?;
//! cache.invalidate(&call).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is shared
//! The key is the method, the message, the metadata that was named, and the encodings that the caller
//! accepts. The answer is that of the handler, byte for byte: initial metadata, message (compressed,
//! if it was) and trailers.
//!
//! A request bypasses the cache if it has [credentials](CachedMethod::credentials) that are not part of
//! the key. **Authenticate callers above the layer**, as the [guide](guide#name-the-methods) shows: an
//! interceptor below it sees only loads. A request also bypasses the cache if it has more than one
//! message, a compressed message, one longer than
//! [`max_request_bytes`](GrpcCacheLayer::max_request_bytes), or if it is not protobuf over gRPC.
//!
//! An answer with more than one message, or larger than
//! [`max_entry_bytes`](GrpcCacheLayer::max_entry_bytes), passes through to its caller. Its waiters
//! call for themselves, and for a while calls with this key are not coalesced.
//!
//! The caller that loads gets the first message at once, before it is known whether another one
//! follows. Waiters get the answer when its trailers have arrived. If the trailers take longer than
//! 100 ms, the answer counts as a stream.
//!
//! A load is for all waiters, so the handler does not see a caller's `grpc-timeout`. That bounds how
//! long its caller waits, for other loads and for its own. The
//! [`load_timeout`](GrpcCacheLayer::load_timeout) bounds how long a load may take.
//!
//! # Statuses
//! | status of the answer | what happens |
//! |---|---|
//! | `OK` | stored, unless its `cache-control` says otherwise |
//! | one that the method [names](CachedMethod::status) | the same |
//! | `UNAVAILABLE`, `DEADLINE_EXCEEDED`, `INTERNAL`, `UNKNOWN`, `RESOURCE_EXHAUSTED`, `DATA_LOSS`, `ABORTED` | a failure: replaced by a stale fallback if there is one. If not, its caller gets it, and the waiters cause one more call, with the request of one of them. If that fails too, all share it during the cooldown |
//! | `UNAUTHENTICATED`, `PERMISSION_DENIED` | only its caller gets it |
//! | `NOT_FOUND` | shared with the waiters of its process, and not stored. Other processes call one after another |
//! | any other | its caller gets it. The waiters of each process cause one more call, with the request of one of them, and share its answer. Processes call one after another. Not stored |
//!
//! Failures of the cache are statuses too, with fixed messages: `DEADLINE_EXCEEDED` if there was no answer by the caller's
//! deadline or the load took too long, `RESOURCE_EXHAUSTED` if a bound is reached, `INTERNAL` if the
//! handler panicked, and `UNAVAILABLE` for any other failure.
//!
//! # Features
//! | feature | default | what it adds |
//! |---|---|---|
//! | `prost` | no | `Prost`: a codec that keeps messages of prost in any [`Cache`](bellwether::Cache) |

mod answer;
mod error_status;
mod fetch;
mod handle;
mod key;
mod layer;
mod message;
mod method;
#[cfg(feature = "prost")]
mod prost_codec;
mod service;

#[doc = include_str!("guide.md")]
pub mod guide {}

pub use error_status::IntoStatus;
pub use handle::{GrpcCall, GrpcHandle};
pub use layer::GrpcCacheLayer;
pub use method::CachedMethod;
#[cfg(feature = "prost")]
pub use prost_codec::Prost;
pub use service::GrpcCache;
pub use service::GrpcResponseFuture;
