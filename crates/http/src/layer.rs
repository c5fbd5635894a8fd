//! `HttpCacheLayer`: what a layer is told, and the services it makes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether::BoxError;
use bellwether::adapter::{CacheClient, PrivateKeys, delegate_load_options};
use bellwether::{Handle, ReadThroughLayer, Store};
use bellwether_body::is_unreachable;
use http::Uri;
use http::request::Parts;
use tower::Layer;

use super::fetch::OriginFetch;
use super::handle::HttpHandle;
use super::kept::HttpCodec;
use super::mode::{self, Mode};
use super::request_key::RequestKey;
use super::rules::Defaults;
use super::service::HttpCache;
use super::shared::LayerState;
use super::target::TargetUri;
use super::variants::Variants;

/// Puts a shared HTTP cache in front of a service. See the [module page](super) for examples.
///
/// A plain value: a knob changes this one, not the services that were made of it. Services made by
/// one layer, and their clones, share its loads: one per target in this process.
#[derive(Clone)]
pub struct HttpCacheLayer<R = Rfc9111Rules> {
    layer: ReadThroughLayer<(), HttpCodec>,
    rules: R,
    target: TargetUri,
    collect_within: Duration,
    unshared: Arc<PrivateKeys>,
    variants: Arc<Variants>,
}

/// The rules of RFC 9111: a response says for how long it is good, and for whom.
#[derive(Clone, Debug)]
pub struct Rfc9111Rules(Defaults);

/// The rules of the program: it says under which key responses are kept, and for how long.
#[derive(Clone, Debug)]
pub struct KeyedRules(mode::ProgramRules);

impl HttpCacheLayer {
    /// A layer over a store, for responses that say for how long they are good.
    pub fn new<S: Store>(store: S) -> Self {
        Self::by(Rfc9111Rules(Defaults::default()), store)
    }

    /// Sets how long responses are fresh that say nothing about it and from which it cannot be
    /// guessed (RFC 9111, section 4.2.2). Requests with a cookie share no such response: see
    /// [`needs_public_with_cookies`](Self::needs_public_with_cookies).
    ///
    /// Default: none, so such responses are not kept.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.rules.0.ttl = Some(ttl);
        self
    }

    /// Sets whether requests with `Cookie` share only responses that say `public` or `s-maxage`.
    ///
    /// If not, they also share those that say for how long they are fresh (`max-age`, `Expires`). A
    /// response that says neither is never shared with a request that has a cookie, in either
    /// direction: that it may be kept is a guess, and it may be one user's page.
    ///
    /// Default: false. A response that states a lifetime and does not say `private` may be kept by
    /// any shared cache (RFC 9111, section 3), and most browsers send some cookie with every
    /// request. Set it in front of an origin that states a lifetime for pages of one user.
    #[must_use]
    pub fn needs_public_with_cookies(mut self, yes: bool) -> Self {
        self.rules.0.needs_public = yes;
        self
    }

    /// Sets how long a response that does not say is given out after it was fresh, while it is
    /// revalidated (RFC 5861, section 3). None is, if the origin forbids it.
    ///
    /// Default: zero.
    #[must_use]
    pub fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.rules.0.while_revalidate = window;
        self
    }

    /// Sets how long a response that does not say is given out after it was fresh, if the origin
    /// gives an error or none at all (RFC 5861, section 4). None is, if the origin forbids it.
    ///
    /// Default: zero.
    #[must_use]
    pub fn stale_if_error(mut self, window: Duration) -> Self {
        self.rules.0.if_error = window;
        self
    }

    /// Sets how the target URI of a request is found, which its response is kept under. The request
    /// itself goes on as it is. Without an authority, the URI is at the host that the request names.
    /// A request without a target URI goes past the cache.
    ///
    /// Default: the URI as the layer sees it, with [what `Router::nest` took
    /// off](super#where-to-put-it). Only the program knows of other services that take something off.
    #[must_use]
    pub fn target_uri<F>(mut self, uri_of: F) -> Self
    where
        F: Fn(&Parts) -> Option<Uri> + Send + Sync + 'static,
    {
        self.target = TargetUri::by(uri_of);
        self
    }

    /// A handle to what is kept: to invalidate it, also from elsewhere in the program.
    pub fn handle(&self) -> HttpHandle {
        HttpHandle::new(self.layer.handle())
    }
}

impl HttpCacheLayer<KeyedRules> {
    /// A layer over a store, for handlers that say nothing about caching: by a key of your own.
    ///
    /// A response of status 2xx is kept for the [`ttl`](Self::ttl), and 404 and 410 for the
    /// [`not_found_ttl`](Self::not_found_ttl). 5xx counts as a failure. Everything else is given to
    /// the waiters, and not kept. What a response says of its time (`max-age`, `Expires`,
    /// `Age`) is not heard. What it forbids is respected: `no-store`, `private`, `no-cache`,
    /// `Set-Cookie`, and a `Vary` that names cookies or credentials. What a caller would rather have
    /// (`Cache-Control` in the request) is not.
    ///
    /// Requests with credentials go around the cache: see
    /// [`RequestKey::ignoring_credentials`]. What a change removes is
    /// [what is kept under its own key](RequestKey#changes).
    pub fn keyed<S: Store>(store: S, key: RequestKey) -> Self {
        let zero = Duration::ZERO;
        let rules = mode::ProgramRules {
            key,
            ttl: zero,
            not_found_ttl: zero,
            while_revalidate: zero,
            if_error: zero,
        };
        Self::by(KeyedRules(rules), store)
    }

    /// Sets how long a response of status 2xx is kept.
    ///
    /// Default: zero, which keeps nothing: concurrent requests share a response.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.rules.0.ttl = ttl;
        self
    }

    /// Sets how long a 404 or 410 is kept.
    ///
    /// Default: zero, which keeps none: what is asked for before it exists is wanted soon after.
    #[must_use]
    pub fn not_found_ttl(mut self, ttl: Duration) -> Self {
        self.rules.0.not_found_ttl = ttl;
        self
    }

    /// Sets how long after it was fresh a response is given out while it is revalidated.
    ///
    /// Default: zero.
    #[must_use]
    pub fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.rules.0.while_revalidate = window;
        self
    }

    /// Sets how long after it was fresh a response is given out if the handler gives an error, or a
    /// response of status 5xx.
    ///
    /// Default: zero.
    #[must_use]
    pub fn stale_if_error(mut self, window: Duration) -> Self {
        self.rules.0.if_error = window;
        self
    }

    /// A handle to what is kept, by the keys that [`RequestKey`] makes.
    pub fn handle(&self) -> Handle {
        self.layer.handle()
    }
}

impl<R> HttpCacheLayer<R> {
    fn by<S: Store>(rules: R, store: S) -> Self {
        let layer = ReadThroughLayer::without_keys(store).codec(HttpCodec);
        let layer = layer.source_failures(|error: &BoxError| is_unreachable(&**error));
        Self {
            layer,
            rules,
            target: TargetUri::default(),
            collect_within: COLLECT_WITHIN,
            unshared: Arc::default(),
            variants: Arc::default(),
        }
    }

    /// Sets how long after its head a response is read to be kept and shared. One that is not
    /// complete by then goes through to the caller that asked for it, beginning with what was read,
    /// and the waiters ask the origin for themselves. After such an answer the next one
    /// has an eighth of that time, and so on, until one is complete in time. The
    /// [`load_timeout`](Self::load_timeout) is for the time until the head; what goes through is
    /// not cut.
    ///
    /// Default: 2 s. Nearly all responses that are worth keeping are complete sooner, and a caller
    /// of a stream without an end does not wait longer for its first byte. Zero keeps only what is
    /// complete together with its head.
    #[must_use]
    pub fn collect_within(mut self, limit: Duration) -> Self {
        self.collect_within = limit;
        self
    }

    delegate_load_options!();
}

impl<S, R> Layer<S> for HttpCacheLayer<R>
where
    R: CachingRules,
{
    type Service = HttpCache<S>;

    fn layer(&self, inner: S) -> HttpCache<S> {
        let client = CacheClient::with_bodies(&self.layer, self.collect_within);
        let (mode, target) = (Arc::new(self.rules.mode()), self.target.clone());
        let (unshared, variants) = (Arc::clone(&self.unshared), Arc::clone(&self.variants));
        let shared = LayerState { client, mode, target, unshared, variants };
        HttpCache::new(OriginFetch { inner, shared })
    }
}

const COLLECT_WITHIN: Duration = Duration::from_secs(2);

/// By which rules a layer goes: [`Rfc9111Rules`] or [`KeyedRules`].
pub trait CachingRules: sealed::Sealed {}

impl<R: sealed::Sealed> CachingRules for R {}

mod sealed {
    #[allow(unnameable_types, reason = "it is sealed: there are two")]
    pub trait Sealed {
        #[allow(private_interfaces, reason = "code outside cannot call it")]
        fn mode(&self) -> super::Mode;
    }
}

#[allow(private_interfaces, reason = "code outside cannot call it")]
impl sealed::Sealed for Rfc9111Rules {
    fn mode(&self) -> Mode {
        Mode::Stated(self.0)
    }
}

#[allow(private_interfaces, reason = "code outside cannot call it")]
impl sealed::Sealed for KeyedRules {
    fn mode(&self) -> Mode {
        Mode::Keyed(self.0.clone())
    }
}

impl<R: fmt::Debug> fmt::Debug for HttpCacheLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, rules, target, .. } = self;
        f.debug_struct("HttpCacheLayer")
            .field("layer", layer)
            .field("rules", rules)
            .field("target", target)
            .finish_non_exhaustive()
    }
}
