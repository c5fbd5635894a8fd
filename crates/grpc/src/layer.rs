//! `GrpcCacheLayer`: the options of the layer.

use std::fmt;
use std::sync::Arc;

use bellwether::adapter::{CacheClient, delegate_load_options, within};
use bellwether::store::Store;
use bellwether::{ConfigError, ErrorClass, ReadThroughLayer};
use bellwether_body::BodyBudget;
use tonic::Status;
use tower::Layer;

use super::answer::GrpcCodec;
use super::error_status::is_of_source;
use super::fetch::{GrpcFetch, LookupOf, UnaryRequest};
use super::handle::GrpcHandle;
use super::method::{CachedMethod, Methods, check};
use super::service::GrpcCache;

/// Puts a cache in front of tonic services. See the [module page](super) for examples.
///
/// An option changes this value only, not the services that were made of it. Services of one layer
/// and their clones share loads: there is one per key in this process.
#[derive(Clone)]
pub struct GrpcCacheLayer {
    layer: ReadThroughLayer<LookupOf, GrpcCodec>,
    methods: Arc<Methods>,
    max_request_bytes: usize,
    collecting: BodyBudget,
    shows_status: bool,
}

impl GrpcCacheLayer {
    /// A layer over a store. Nothing is cached until a [`method`](Self::method) is named.
    pub fn new<S: Store>(store: S) -> Self {
        Self {
            layer: ReadThroughLayer::new(store, UnaryRequest::ask as LookupOf)
                .codec(GrpcCodec)
                .tags(UnaryRequest::tags)
                .classify_error(|status: &Status| match is_of_source(status) {
                    true => ErrorClass::SourceFailure,
                    false => ErrorClass::Failure,
                }),
            methods: Arc::default(),
            max_request_bytes: FOUR_MIB,
            collecting: BodyBudget::new(COLLECTED_BYTES),
            shows_status: false,
        }
    }

    /// Caches a method, by its path as in `/package.Service/Method`. It has to be unary, and must not
    /// change anything. If a method is named twice, the last one counts.
    ///
    /// A server stream that is named by mistake passes through, but its head waits for its first
    /// message. One of a single message cannot be told from a unary answer, and is stored.
    ///
    /// Default: none. Only the author of a method knows whether its answers may be shared.
    ///
    /// # Errors
    /// If this is not the path of a method.
    pub fn method(mut self, path: &str, mut method: CachedMethod) -> Result<Self, ConfigError> {
        check(path)?;
        method.calls = Arc::default();
        Arc::make_mut(&mut self.methods).insert(path.to_owned(), Arc::new(method));
        Ok(self)
    }

    /// Sets how many bytes of a request message are read to make its key. A request with a larger
    /// message bypasses the cache.
    ///
    /// Default: 4 MiB, the limit of a tonic server by default.
    ///
    /// # Errors
    /// If it is not from 1 to 512 MiB.
    pub fn max_request_bytes(mut self, most: usize) -> Result<Self, ConfigError> {
        self.max_request_bytes = within("max request bytes", most, 1, 128 * FOUR_MIB)?;
        Ok(self)
    }

    /// Sets how many bytes all answers of this layer take together while they are read. Beyond that,
    /// an answer passes through to its caller, as one that is too large.
    ///
    /// Default: 64 MiB. A load may go on after its client has left, so the number of clients is no
    /// bound.
    #[must_use]
    pub fn max_collected_bytes(mut self, most: usize) -> Self {
        self.collecting = BodyBudget::new(most);
        self
    }

    /// Adds `cache-status` (RFC 9211) to the initial metadata of each answer of a cached method. It
    /// says how the answer came about: see [`CacheStatus`](bellwether::CacheStatus).
    ///
    /// Default: off, so that answers are the same as without the layer, byte for byte.
    #[must_use]
    pub fn show_status(mut self) -> Self {
        self.shows_status = true;
        self
    }

    delegate_load_options!();

    /// A handle to the stored answers of the methods that were named so far, by call and by tag.
    pub fn handle(&self) -> GrpcHandle {
        GrpcHandle::new(self.layer.handle(), Arc::clone(&self.methods))
    }
}

impl<S> Layer<S> for GrpcCacheLayer {
    type Service = GrpcCache<S>;

    fn layer(&self, inner: S) -> GrpcCache<S> {
        let client = CacheClient::new(&self.layer);
        let fetch = GrpcFetch {
            inner,
            most: client.max_entry_bytes(),
            collecting: self.collecting.clone(),
        };
        GrpcCache {
            cache: self.layer.layer(fetch),
            client,
            methods: Arc::clone(&self.methods),
            others: Arc::default(),
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

/// 64 MiB.
const COLLECTED_BYTES: usize = 16 * FOUR_MIB;

const FOUR_MIB: usize = 4 * 1024 * 1024;
