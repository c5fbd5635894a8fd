//! A cache in front of tonic services.
//!
//! The [guide](mod@guide) goes through keys, statuses, deadlines and invalidation.
//!
//! Methods are cached by name; everything else, streams included, goes through as it comes. Many
//! callers that ask for the same thing in many processes cause one call of the handler:
//!
//! ```
//! use std::time::Duration;
//!
//! use bellwether::MemoryStore;
//! use bellwether_grpc::{CachedMethod, GrpcCacheLayer};
//!
//! # fn layer() -> Result<(), bellwether::ConfigError> {
//! let store = MemoryStore::new(10_000); // or RedisStore::connect("redis://127.0.0.1:6379").await?
//! let product = CachedMethod::fresh_for(Duration::from_secs(60));
//! let layer = GrpcCacheLayer::new(store).method("/catalog.Catalog/Product", product)?;
//! # let catalog = tonic::service::Routes::default();
//!
//! let server = tonic::transport::Server::builder().layer(layer);
//! # let _ = { let mut server = server; server.add_routes(catalog) };
//! # Ok(())
//! # }
//! ```
//!
//! Around one service it is `layer.layer(CatalogServer::new(..))`, or a part of a `ServiceBuilder`;
//! the service keeps its name. A method can be kept otherwise than by default, and what is kept can
//! be invalidated:
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
//!     .ignoring_credentials(); // all callers that may call this are given the same
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
//! The key is the method, the message, the metadata that was named, and which encodings the caller
//! accepts. An answer is given out as the handler gave it: initial metadata, message (compressed, if
//! it was) and trailers are the same bytes as without the layer.
//!
//! A request goes past the cache if it has `authorization` or `cookie` metadata that is not part of
//! the key, more than one message, one that is compressed or longer than
//! [`max_request_bytes`](GrpcCacheLayer::max_request_bytes), or if it is not protobuf over gRPC. An
//! answer with more than one message, or larger than
//! [`max_entry_bytes`](GrpcCacheLayer::max_entry_bytes), goes through to its caller as it comes. The
//! waiters ask for themselves, and for a while callers do not wait for each other.
//!
//! The first message of an answer is not held back until it is known whether another one follows: its
//! caller gets the message at once. Waiters get the answer when its trailers are there. If the
//! trailers take longer than a tenth of a second, the answer counts as a stream.
//!
//! A load is for all callers that wait, so the handler is not told of a caller's `grpc-timeout`: that
//! bounds how long its caller waits, for others and for a load of its own, and
//! [`load_timeout`](GrpcCacheLayer::load_timeout) bounds how long a load may take.
//!
//! # Statuses
//! | of the answer | what becomes of it |
//! |---|---|
//! | `OK` | kept, unless its `cache-control` says otherwise |
//! | one that the method [names](CachedMethod::status) | the same |
//! | `UNAVAILABLE`, `DEADLINE_EXCEEDED`, `INTERNAL`, `UNKNOWN`, `RESOURCE_EXHAUSTED`, `DATA_LOSS`, `ABORTED` | a failure: a stale answer instead if there is one, or else for its caller; the others that wait cause one more call, with a request of one of them, and if that fails too all share it for its failure window |
//! | `UNAUTHENTICATED`, `PERMISSION_DENIED` | for its caller only |
//! | `NOT_FOUND` | shared with the waiters, and not kept |
//! | any other | for its caller; the others that wait cause one more call, with a request of one of them, and share its answer. Not kept |
//!
//! What is not the handler's is a status too: `DEADLINE_EXCEEDED` if there was no answer by the
//! caller's deadline or the load took too long, `RESOURCE_EXHAUSTED` if a bound is reached, `INTERNAL`
//! if the handler panicked, and `UNAVAILABLE` if anything else failed.

mod answer;
mod deadline;
mod early;
mod fetch;
mod future;
mod handle;
mod key;
mod layer;
mod message;
mod method;
mod service;
mod trouble;
mod verdict;

#[doc = include_str!("guide.md")]
pub mod guide {}

pub use future::GrpcResponseFuture;
pub use handle::{GrpcCall, GrpcHandle};
pub use layer::GrpcCacheLayer;
pub use method::CachedMethod;
pub use service::GrpcCache;
