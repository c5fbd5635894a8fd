//! `GrpcCacheLayer`: the options of the layer.

use std::sync::Arc;

use bellwether::adapter::{AdapterCache, delegate_load_options, within};
use bellwether::service::ReadThroughLayerBuilder;
use bellwether::stats::CacheStats;
use bellwether::store::Store;
use bellwether::{ConfigError, ErrorClass, ReadThroughLayer};
use bellwether_body::BodyBudget;
use tonic::Status;
use tower::Layer;

use super::answer::GrpcCodec;
use super::error_status::is_of_source;
use super::fetch::GrpcFetch;
use super::handle::GrpcHandle;
use super::method::{CachedMethod, check};
use super::service::{GrpcCache, GrpcOptions};

/// Puts a cache in front of tonic services. See the [module page](super) for examples.
///
/// Its services and their clones share loads: there is one per key in this process.
///
/// To leave it out with tower's `option_layer`, give both ways one type of body. Or switch it
/// [off](GrpcCacheLayerBuilder::enabled).
///
/// ```
/// use bellwether::MemoryStore;
/// use bellwether_grpc::{GrpcCache, GrpcCacheLayer};
/// use tonic::{body::Body, codegen::http::Request, service::Routes, transport::Server};
/// use tower::{Service, ServiceBuilder, util::option_layer};
///
/// # fn main() -> Result<(), bellwether::ConfigError> {
/// # for is_on in [true, false] {
/// let cache = GrpcCacheLayer::builder(MemoryStore::new(10_000)).build()?;
/// type Answer = <GrpcCache<Routes> as Service<Request<Body>>>::Response;
/// let body = |response: Answer| response.map(Body::new);
/// let cache = ServiceBuilder::new().map_response(body).layer(cache).into_inner();
/// let server = Server::builder().layer(option_layer(is_on.then_some(cache)));
/// # { let mut server = server; _ = server.add_routes(Routes::default()) };
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct GrpcCacheLayer {
    layer: ReadThroughLayer<(), GrpcCodec>,
    options: GrpcOptions,
}

impl GrpcCacheLayer {
    /// Begins a layer over a store. Nothing is cached until a [`method`](GrpcCacheLayerBuilder::method) is
    /// named.
    pub fn builder<S: Store>(store: S) -> GrpcCacheLayerBuilder {
        let layer = ReadThroughLayer::without_keys(store).codec(GrpcCodec).classify_error(
            |status: &Status| match is_of_source(status) {
                true => ErrorClass::SourceFailure,
                false => ErrorClass::Failure,
            },
        );
        let options = GrpcOptions {
            methods: Arc::default(),
            max_request_bytes: FOUR_MIB,
            collecting: BodyBudget::new(COLLECTED_BYTES),
            shows_status: false,
        };
        GrpcCacheLayerBuilder { layer, options }
    }

    /// A handle to the stored answers of the methods that were named, by call and by tag.
    pub fn handle(&self) -> GrpcHandle {
        GrpcHandle::new(self.layer.handle(), Arc::clone(&self.options.methods))
    }

    /// What the services of this layer and its clones have done in this process.
    pub fn stats(&self) -> CacheStats {
        self.layer.stats()
    }
}

impl<S> Layer<S> for GrpcCacheLayer {
    type Service = GrpcCache<S>;

    fn layer(&self, inner: S) -> GrpcCache<S> {
        let client = AdapterCache::new(&self.layer);
        let (most, collecting) = (client.max_entry_bytes(), self.options.collecting.clone());
        let (options, others) = (self.options.clone(), Arc::default());
        GrpcCache { fetch: GrpcFetch { inner, most, collecting }, client, options, others }
    }
}

/// The options of a [`GrpcCacheLayer`]. Made by [`GrpcCacheLayer::builder`].
///
/// What is wrong with one of them is said by [`build`](Self::build).
#[derive(Debug)]
#[must_use]
pub struct GrpcCacheLayerBuilder {
    layer: ReadThroughLayerBuilder<(), GrpcCodec>,
    options: GrpcOptions,
}

impl GrpcCacheLayerBuilder {
    /// Caches a method, by its path as in `/package.Service/Method`. It has to be unary, and must not
    /// change anything. If a method is named twice, the last one counts.
    ///
    /// A server stream that is named by mistake passes through, but its head waits for its first
    /// message, and for 0.1 s after that. One of a single message cannot be told from a unary answer, and is stored.
    /// A stream of requests passes through 1 s after its first message.
    /// [`build`](Self::build) fails if this is not the path of a method.
    ///
    /// Default: none. Only the author of a method knows whether its answers may be shared.
    pub fn method(mut self, path: &str, mut method: CachedMethod) -> Self {
        self.layer.set_checked(&mut (), check(path).and_then(|()| method.wrong.result()));
        method.calls = Arc::default();
        Arc::make_mut(&mut self.options.methods).insert(path.to_owned(), Arc::new(method));
        self
    }

    /// Sets how many bytes of a request message are read to make its key. A request with a larger
    /// message bypasses the cache. [`build`](Self::build) fails if it is not from 1 to 512 MiB.
    ///
    /// Default: 4 MiB, the limit of a tonic server by default.
    pub fn max_request_bytes(mut self, most: usize) -> Self {
        let most = within("max request bytes", most, 1, 128 * FOUR_MIB);
        self.layer.set_checked(&mut self.options.max_request_bytes, most);
        self
    }

    /// Sets how many bytes all answers of this layer take together while they are read. Beyond that,
    /// an answer passes through to its caller, as one that is too large.
    ///
    /// Default: 64 MiB. A load may go on after its client has left, so the number of clients is no
    /// bound.
    pub fn max_collected_bytes(mut self, most: usize) -> Self {
        self.options.collecting = BodyBudget::new(most);
        self
    }

    /// Adds `cache-status` (RFC 9211) to the initial metadata of each answer of a cached method. It
    /// says how the answer came about: see [`CacheStatus`](bellwether::CacheStatus).
    ///
    /// Default: off, so that answers are the same as without the layer, byte for byte.
    pub fn show_status(mut self) -> Self {
        self.options.shows_status = true;
        self
    }

    delegate_load_options! {
        audit(rate: f64);
        shadow(shadow: bool);
    }

    /// The layer.
    ///
    /// # Errors
    /// If an option is wrong, or one of a method: the first one.
    pub fn build(self) -> Result<GrpcCacheLayer, ConfigError> {
        Ok(GrpcCacheLayer { layer: self.layer.build()?, options: self.options })
    }
}

/// 64 MiB.
const COLLECTED_BYTES: usize = 16 * FOUR_MIB;

const FOUR_MIB: usize = 4 * 1024 * 1024;
