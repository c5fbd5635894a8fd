//! `GrpcCacheLayer`: what the layer is told.

use std::fmt;
use std::sync::Arc;

use bellwether::adapter::{CacheClient, delegate_load_options, number_within};
use bellwether::{ConfigError, ReadThroughLayer, Store};
use tower::Layer;

use super::answer::GrpcCodec;
use super::fetch::{GrpcFetch, LookupOf, UnaryRequest};
use super::handle::GrpcHandle;
use super::method::{CachedMethod, Methods, check};
use super::service::GrpcCache;
use super::trouble::is_of_source;

/// Puts a cache in front of tonic services. See the [module page](super) for examples.
///
/// A plain value: a knob changes this one, not the services that were made of it. Services made by
/// one layer, and their clones, share its loads: one per key in this process.
#[derive(Clone)]
pub struct GrpcCacheLayer {
    layer: ReadThroughLayer<LookupOf, GrpcCodec>,
    methods: Arc<Methods>,
    max_request_bytes: usize,
    shows_status: bool,
}

impl GrpcCacheLayer {
    /// A layer over a store. Nothing is cached until a [`method`](Self::method) is named.
    pub fn new<S: Store>(store: S) -> Self {
        Self {
            layer: ReadThroughLayer::new(store, UnaryRequest::ask as LookupOf)
                .codec(GrpcCodec)
                .source_failures(is_of_source),
            methods: Arc::default(),
            max_request_bytes: FOUR_MIB,
            shows_status: false,
        }
    }

    /// Caches a method, by its path as in `/package.Service/Method`. It has to be a unary one that
    /// changes nothing. The last word on a method counts. The messages of a server stream that is named
    /// by mistake go through as they come, but its head waits for the first of them.
    ///
    /// Default: none. Only its author can say whether the answers of a method may be shared.
    ///
    /// # Errors
    /// If the path is not that of a method.
    pub fn method(mut self, path: &str, method: CachedMethod) -> Result<Self, ConfigError> {
        check(path)?;
        Arc::make_mut(&mut self.methods).insert(path.to_owned(), Arc::new(method));
        Ok(self)
    }

    /// Sets how large a request message is read to make a key of it, in bytes. A larger one goes
    /// past the cache.
    ///
    /// Default: 4 MiB, the most that a tonic server takes by default.
    ///
    /// # Errors
    /// If it is not from 1 to 512 MiB.
    pub fn max_request_bytes(mut self, most: usize) -> Result<Self, ConfigError> {
        self.max_request_bytes = number_within("max request bytes", most, 1, 128 * FOUR_MIB)?;
        Ok(self)
    }

    /// Adds to the initial metadata of each answer of a cached method how it came about, as
    /// `cache-status`, in the words of RFC 9211: see [`CacheStatus`](bellwether::CacheStatus).
    ///
    /// Default: off, so that answers are the same as without the layer, byte for byte.
    #[must_use]
    pub fn show_status(mut self) -> Self {
        self.shows_status = true;
        self
    }

    delegate_load_options!();

    /// A handle to what is kept, by the methods that were named so far.
    pub fn handle(&self) -> GrpcHandle {
        GrpcHandle::new(self.layer.handle(), Arc::clone(&self.methods))
    }
}

impl<S> Layer<S> for GrpcCacheLayer {
    type Service = GrpcCache<S>;

    fn layer(&self, inner: S) -> GrpcCache<S> {
        let most = CacheClient::new(&self.layer).max_entry_bytes();
        let fetch = GrpcFetch { inner, most };
        GrpcCache {
            cache: self.layer.layer(fetch),
            methods: Arc::clone(&self.methods),
            max_request_bytes: self.max_request_bytes,
            shows_status: self.shows_status,
        }
    }
}

impl fmt::Debug for GrpcCacheLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcCacheLayer")
            .field("layer", &self.layer)
            .field("methods", &self.methods)
            .field("max_request_bytes", &self.max_request_bytes)
            .field("shows_status", &self.shows_status)
            .finish()
    }
}

const FOUR_MIB: usize = 4 * 1024 * 1024;
