//! `HttpCacheLayer`: the options of the layer, and the services it makes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether::adapter::{CacheClient, PrivateKeys, delegate_load_options, within};
use bellwether::store::Store;
use bellwether::{BoxError, ConfigError, ErrorClass, ReadThroughLayer};
use bellwether_body::{BodyBudget, is_unreachable};
use http::request::Parts;
use http::{HeaderName, Uri};
use tokio::sync::Semaphore;
use tower::Layer;

use super::caching_rules::{CachingRules, Rfc9111Rules};
use super::codec::HttpCodec;
use super::expiry::ExpiryRuns;
use super::fetch::OriginFetch;
use super::handle::HttpHandle;
use super::purge::PurgeLayer;
use super::rules::Defaults;
use super::service::HttpCache;
use super::shared::LayerState;
use super::tag_fields::TagFields;
use super::target::TargetUri;
use super::target_gates::TargetGates;
use super::variants::Variants;

/// Puts a shared HTTP cache in front of a service. See the [module page](super) for examples.
///
/// An option changes this value only, not the services that were made of it. Services of one layer
/// and their clones share loads: there is one per target in this process.
#[derive(Clone)]
pub struct HttpCacheLayer<R = Rfc9111Rules> {
    pub(super) layer: ReadThroughLayer<(), HttpCodec>,
    pub(super) rules: R,
    target: TargetUri,
    collect_within: Duration,
    private_targets: Arc<PrivateKeys>,
    after_errors: Arc<TargetGates>,
    unshared: Option<Arc<TargetGates>>,
    collecting: BodyBudget,
    variants: Arc<Variants>,
    tag_fields: TagFields,
    pub(super) expiries: ExpiryRuns,
    finishing: Arc<Semaphore>,
}

impl HttpCacheLayer {
    /// A layer over a store, for responses that state their freshness lifetime (RFC 9111).
    pub fn new<S: Store>(store: S) -> Self {
        Self::by(Rfc9111Rules(Defaults::default()), store)
    }

    /// Sets how long a response is fresh that neither states a lifetime nor has a `Last-Modified` to
    /// guess one from (RFC 9111, section 4.2.2). Requests with a cookie never share such a response:
    /// see [`needs_public_with_cookies`](Self::needs_public_with_cookies).
    ///
    /// Default: none, so such responses are not stored.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.rules.0.ttl = Some(ttl);
        self
    }

    /// Sets how long a stale response is served if the service behind the layer gives no answer, counted
    /// from when it becomes stale. Answers of status 5xx are no such case: see
    /// [`stale_if_error`](Self::stale_if_error). A response that forbids stale use is never served stale.
    ///
    /// Default: zero. A proxy may serve stale responses while it is disconnected (RFC 9111, section
    /// 4.2.4).
    #[must_use]
    pub fn stale_if_disconnected(mut self, window: Duration) -> Self {
        self.rules.0.stale.if_disconnected = window;
        self
    }

    /// Sets whether requests with `Cookie` share only responses that say `public` or `s-maxage`.
    ///
    /// If not, they also share responses that state a freshness lifetime (`max-age`, `Expires`). A
    /// response that says neither is not shared if the request that loaded it, or the one to be
    /// answered, has a cookie: its lifetime is only a guess, and it may be the page of one user.
    ///
    /// Default: false. Any shared cache may store a response that states a lifetime and does not say
    /// `private` (RFC 9111, section 3), and most browsers send some cookie with every request. Set
    /// this in front of an origin that states a lifetime for pages of single users.
    #[must_use]
    pub fn needs_public_with_cookies(mut self, yes: bool) -> Self {
        self.rules.0.needs_public = yes;
        self
    }

    /// Follows `CDN-Cache-Control` (RFC 9213): its lifetimes override those of `Cache-Control` and
    /// `Expires`.
    ///
    /// Default: off. An origin means the caches of a CDN by this field, which may have keys of their own,
    /// with the session for example. `private` and `no-store` hold always, in either field.
    #[must_use]
    pub fn following_cdn_cache_control(mut self) -> Self {
        self.rules.0.follows_cdn = true;
        self
    }

    /// Ignores `Cache-Control` and `Pragma` of requests, so that a client cannot have a request of its
    /// own sent to the origin by `no-store` or `no-cache`.
    ///
    /// Default: the fields are followed (RFC 9111, section 5.2.1). `If-Match` and `If-Unmodified-Since`
    /// bypass the cache in any case.
    #[must_use]
    pub fn ignoring_request_cache_control(mut self) -> Self {
        self.rules.0.ignores_request_cache_control = true;
        self
    }

    /// Sets the function that makes the target URI of a request, by which its response is stored.
    /// The request itself is not changed. If the URI has no authority, it gets the authority
    /// and the scheme of the request. A request bypasses the cache if the function returns `None`, or if
    /// its own URI and `Host` name different hosts.
    ///
    /// Default: the URI as the layer sees it, with [what `Router::nest` took
    /// off](super::guide#where-to-put-it). The layer cannot know what other services took off.
    #[must_use]
    pub fn target_uri<F>(mut self, uri_of: F) -> Self
    where
        F: Fn(&Parts) -> Option<Uri> + Send + Sync + 'static,
    {
        self.target = TargetUri::by(uri_of);
        self
    }

    /// A handle that invalidates stored responses, by URI, group and surrogate key. It can be used
    /// anywhere in the program.
    pub fn handle(&self) -> HttpHandle {
        HttpHandle::new(&CacheClient::new(&self.layer), &self.expiries)
    }
}

impl<R> HttpCacheLayer<R> {
    pub(super) fn by<S: Store>(rules: R, store: S) -> Self {
        let layer = ReadThroughLayer::without_keys(store).codec(HttpCodec);
        let layer = layer.classify_error(|error: &BoxError| match is_unreachable(&**error) {
            true => ErrorClass::SourceFailure,
            false => ErrorClass::Failure,
        });
        Self {
            layer,
            rules,
            target: TargetUri::default(),
            collect_within: COLLECT_WITHIN,
            private_targets: Arc::default(),
            after_errors: Arc::new(TargetGates::new(MOST_AFTER_ERRORS)),
            unshared: None,
            collecting: BodyBudget::new(COLLECTED_BYTES),
            variants: Arc::default(),
            tag_fields: TagFields::default(),
            expiries: ExpiryRuns::default(),
            finishing: Arc::new(Semaphore::new(MOST_FINISHING)),
        }
    }

    /// Sets by when the body of a response must be complete to be stored and shared, counted from
    /// its head. A response that is not complete by then passes through to its caller, beginning
    /// with what was read, and the waiters ask the origin for themselves. Each such response divides
    /// the time for the next one of its target by eight, in at most four steps, until one is complete
    /// within the whole time.
    ///
    /// The [`load_timeout`](Self::load_timeout) bounds the time until the head. A response that
    /// passes through has no time limit.
    ///
    /// Default: 2 s. Nearly all responses that are worth storing are complete sooner, and a stream
    /// without an end delays its first byte by no more than that. Zero stores only responses that
    /// are complete together with their head.
    #[must_use]
    pub fn collect_within(mut self, limit: Duration) -> Self {
        self.collect_within = limit;
        self
    }

    /// Sets how many bytes all bodies of this layer take together that are read to be stored. Beyond
    /// that, a body passes through to its caller, as one that is too large.
    ///
    /// Default: 64 MiB. A load may go on after its client has left, so the number of clients is no
    /// bound.
    #[must_use]
    pub fn max_collected_bytes(mut self, most: usize) -> Self {
        self.collecting = BodyBudget::new(most);
        self
    }

    /// Sets how many requests for one target ask the origin at once whose responses cannot be shared:
    /// private ones, errors, and those that are too large or too slow to be stored. Further ones wait
    /// in their order, for the [`load_timeout`](Self::load_timeout) at most, and then get a 503. A
    /// request counts until its response is complete, or until
    /// [`collect_within`](Self::collect_within) after the head.
    ///
    /// Default: no bound. With one, users of a private page wait for each other: of 1,000 at once with
    /// a bound of 50, the last ones wait for 19 others.
    ///
    /// # Errors
    /// If it is not from 1 to 1,000,000.
    pub fn max_unshared_per_target(mut self, most: usize) -> Result<Self, ConfigError> {
        let most = within("max unshared requests per target", most, 1, 1_000_000)?;
        self.unshared = Some(Arc::new(TargetGates::new(most)));
        Ok(self)
    }

    /// Ignores `Cache-Groups` and `Cache-Group-Invalidation` (RFC 9875). Use this if one origin serves
    /// content of parties that must not invalidate each other's responses, and you cannot control
    /// which of these fields they send.
    ///
    /// Default: the fields are followed. A response is stored with the groups that `Cache-Groups` of
    /// the response lists. If an unsafe request succeeds, the groups that `Cache-Group-Invalidation`
    /// of its response lists are invalidated, in the origin of that request. See the
    /// [guide](super::guide::invalidation#groups-of-responses).
    #[must_use]
    pub fn ignoring_cache_groups(mut self) -> Self {
        self.tag_fields.follows_groups = false;
        self
    }

    /// Reads the surrogate keys of a response from this field, such as `surrogate-key` or
    /// `cache-tag`, between spaces or commas. They are compared byte for byte. Unlike groups, they
    /// hold for all origins behind this layer.
    ///
    /// A response with more than [`Tags::MOST`](bellwether::Tags::MOST) surrogate keys and groups in
    /// all is not stored, since it could not be invalidated. That is logged.
    ///
    /// Default: none, because the name of the field is not standardised. The layer removes the field
    /// from what it returns, because it is not meant for clients: see
    /// [`forwarding_surrogate_keys`](Self::forwarding_surrogate_keys).
    ///
    /// # Errors
    /// If this is not a valid name of a header field, or the name of a field of groups.
    pub fn surrogate_keys(mut self, field: &str) -> Result<Self, ConfigError> {
        self.tag_fields = self.tag_fields.with_surrogate_keys(field)?;
        Ok(self)
    }

    /// Leaves the field with the [surrogate keys](Self::surrogate_keys) in responses, for a CDN in
    /// front of this layer.
    ///
    /// Default: the layer removes it.
    #[must_use]
    pub fn forwarding_surrogate_keys(mut self) -> Self {
        self.tag_fields.forwards_surrogate_keys = true;
        self
    }

    delegate_load_options!();
}

impl<R: CachingRules> HttpCacheLayer<R> {
    /// Adds request header fields that are credentials, in addition to `authorization`,
    /// `proxy-authorization`, `cookie`, `x-api-key` and `x-auth-token`. The
    /// [guide](super::guide#users-cookies-and-tokens) says how requests with credentials are answered.
    ///
    /// # Errors
    /// If one is not a valid name of a header field.
    pub fn credentials<'a>(
        mut self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, ConfigError> {
        let parsed = |name: &str| {
            let reason = "this is not a valid name of a header field";
            name.parse().map_err(|_| ConfigError::Key { given: name.to_owned(), reason })
        };
        let names = names.into_iter().map(parsed).collect::<Result<Vec<HeaderName>, _>>()?;
        let credentials = self.rules.credentials();
        *credentials = credentials.with(names);
        Ok(self)
    }

    /// Sets how long a stale response is served while it is revalidated (RFC 5861, section 3), counted
    /// from when it becomes stale.
    ///
    /// By the [rules of RFC 9111](Rfc9111Rules), a response can state that time itself, and one that
    /// forbids stale use (`must-revalidate`, for example) is never served stale.
    ///
    /// Default: zero.
    #[must_use]
    pub fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.rules.stale().while_revalidate = window;
        self
    }

    /// Sets how long a stale response is served if the service behind the layer fails, answers with
    /// status 5xx or not at all (RFC 5861, section 4), counted from when it becomes stale.
    ///
    /// By the [rules of RFC 9111](Rfc9111Rules), a response can state that time itself, and one that
    /// forbids stale use is never served stale.
    ///
    /// Default: zero.
    #[must_use]
    pub fn stale_if_error(mut self, window: Duration) -> Self {
        self.rules.stale().if_error = window;
        self
    }

    /// A layer that answers authenticated `PURGE` requests, for the responses that this layer has
    /// stored: see [`PurgeLayer`]. A client proves its right by `Authorization: Bearer` and this
    /// token.
    ///
    /// # Errors
    /// If the token is shorter than 16 bytes or longer than 1,024, or has other characters than
    /// visible ASCII. The error does not repeat it.
    pub fn purge(&self, token: &str) -> Result<PurgeLayer, ConfigError> {
        let handle = HttpHandle::new(&CacheClient::new(&self.layer), &self.expiries);
        let mode = self.rules.mode();
        PurgeLayer::new(token, handle, mode, self.target.clone(), self.tag_fields.clone())
    }
}

impl<S, R> Layer<S> for HttpCacheLayer<R>
where
    R: CachingRules,
{
    type Service = HttpCache<S>;

    fn layer(&self, inner: S) -> HttpCache<S> {
        let client = CacheClient::with_bodies(&self.layer, self.collect_within);
        let shared = LayerState {
            client,
            mode: Arc::new(self.rules.mode()),
            target: self.target.clone(),
            private_targets: Arc::clone(&self.private_targets),
            after_errors: Arc::clone(&self.after_errors),
            unshared: self.unshared.clone(),
            collecting: self.collecting.clone(),
            variants: Arc::clone(&self.variants),
            tag_fields: Arc::new(self.tag_fields.clone()),
            expiries: self.expiries.clone(),
            finishing: Arc::clone(&self.finishing),
        };
        HttpCache::new(OriginFetch { inner, shared })
    }
}

const COLLECT_WITHIN: Duration = Duration::from_secs(2);

/// How many unsafe requests are finished at once after their callers have left.
const MOST_FINISHING: usize = 64;

/// 64 MiB.
const COLLECTED_BYTES: usize = 64 * 1024 * 1024;

/// How many waiters for one target ask the origin at once after two errors in a row. One client has
/// seldom more requests in flight, and an origin that fails for all gets few more requests than one.
const MOST_AFTER_ERRORS: usize = 16;

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
