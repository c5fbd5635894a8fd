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
//! use bellwether::MemoryStore;
//! use bellwether_grpc::{CachedMethod, GrpcCacheLayer};
//! use tonic::service::InterceptorLayer;
//! use tonic::{Request, Status};
//! # fn authenticate(request: Request<()>) -> Result<Request<()>, Status> { Ok(request) }
//!
//! let product = CachedMethod::fresh_for(Duration::from_secs(60))
//!     .ignoring_credentials(); // all permitted callers get the same answer
//! let layer = GrpcCacheLayer::builder(MemoryStore::new(10_000)) // or a RedisStore
//!     .method("/catalog.Catalog/Product", product)
//!     .build()?;
//! # let catalog = tonic::service::Routes::default();
//!
//! let server = tonic::transport::Server::builder()
//!     .layer(InterceptorLayer::new(authenticate)) // sees every call
//!     .layer(layer);
//! # let _ = { let mut server = server; server.add_routes(catalog) };
//! # Ok::<_, bellwether::ConfigError>(())
//! ```
//!
//! **A call with a token bypasses the cache,** unless the method is marked
//! [`ignoring_credentials`](CachedMethod::ignoring_credentials), or the token is part of the key
//! ([`metadata`](CachedMethod::metadata)). So **authenticate callers above the layer**: an interceptor below it, as by
//! `with_interceptor`, sees only loads, and any caller gets what is stored.
//!
//! For a single service use `layer.layer(CatalogServer::new(..))`. In a handler with a `Cache`, [`IntoStatus`] makes
//! statuses of its errors. With the feature `prost`, any cache stores messages of prost by the codec `Prost`. The
//! [guide](mod@guide) has the rest.

#![cfg_attr(docsrs, feature(doc_cfg))]

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
pub use service::{GrpcCache, GrpcResponseFuture};
