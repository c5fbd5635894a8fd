//! A cache in front of tonic services: you name the unary methods to cache, and all else passes through.
//!
//! Equal calls that come together cause one call of the handler, in any number of processes. The answer is
//! that of the handler, byte for byte: initial metadata, message and trailers.
//!
//! ```text
//! cargo add bellwether bellwether-grpc
//! ```
//!
//! ```
//! use std::time::Duration;
//!
//! use bellwether::{Cache, MemoryStore};
//! use bellwether_grpc::{CachedMethod, GrpcCacheLayer, IntoStatus};
//! use tonic::Status;
//! # async fn query(sku: u64) -> Result<String, std::io::Error> { Ok(format!("item {sku}")) }
//!
//! # fn layer() -> Result<(), bellwether::ConfigError> {
//! let product = CachedMethod::fresh_for(Duration::from_secs(60))
//!     .ignoring_credentials(); // all permitted callers get the same answer
//! let layer = GrpcCacheLayer::builder(MemoryStore::new(10_000)) // or a RedisStore
//!     .method("/catalog.Catalog/Product", product)
//!     .build()?;
//! # let catalog = tonic::service::Routes::default();
//!
//! let server = tonic::transport::Server::builder().layer(layer); // below what authenticates callers
//! # let _ = { let mut server = server; server.add_routes(catalog) };
//! # Ok(())
//! # }
//! # layer().unwrap();
//!
//! // In a handler with a cache:
//! async fn name(names: &Cache<u64, String>, sku: u64) -> Result<String, Status> {
//!     let load = async move || query(sku).await;
//!     names.get_or_load(sku, load).await.map_err(IntoStatus::into_status)
//! }
//! ```
//!
//! **A call with a token bypasses the cache,** unless the method is marked
//! [`ignoring_credentials`](CachedMethod::ignoring_credentials), or the token is part of the key
//! ([`metadata`](CachedMethod::metadata)). So **authenticate callers above the layer**: an interceptor below it
//! sees only loads.
//!
//! For a single service use `layer.layer(CatalogServer::new(..))`; it keeps its name.
//!
//! The [guide](mod@guide) has credentials, keys, statuses, deadlines and invalidation. With the feature `prost`, any
//! cache keeps messages of prost by the codec `Prost`.

mod answer;
mod error_status;
mod fetch;
mod handle;
mod key;
mod layer;
mod message;
mod method;
mod method_use;
#[cfg(feature = "prost")]
mod prost_codec;
mod service;

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide.md")]
pub mod guide {}

pub use error_status::IntoStatus;
pub use handle::{GrpcCall, GrpcCallBuilder, GrpcHandle};
pub use layer::{GrpcCacheLayer, GrpcCacheLayerBuilder};
pub use method::CachedMethod;
#[cfg(feature = "prost")]
pub use prost_codec::Prost;
pub use service::GrpcCache;
pub use service::GrpcResponseFuture;
