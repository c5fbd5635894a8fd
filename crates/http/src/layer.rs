//! `HttpCacheLayer`: the options of the layer, and the services it makes.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bellwether::adapter::{AdapterCache, delegate_load_options, within};
use bellwether::service::{Handle, ReadThroughLayerBuilder};
use bellwether::stats::CacheStats;
use bellwether::store::Store;
use bellwether::{ConfigError, ErrorClass, ReadThroughLayer};
use bellwether_body::{BodyBudget, is_unreachable};
use http::Uri;
use http::request::Parts;
use tokio::sync::Semaphore;
use tower::Layer;

use super::bearer_token::BearerToken;
use super::caching_rules::{KeyedRules, Rfc9111Rules, Rules};
use super::codec::HttpCodec;
use super::fetch::OriginFetch;
use super::handle::HttpHandle;
use super::layer_state::{LayerCore, LayerState};
use super::request_key::{RequestKey, field_name};
use super::service::HttpCache;
use super::tag_fields::TagFields;
use super::target::TargetUri;
use super::target_gates::TargetGates;

/// Puts a shared HTTP cache in front of a service. See the [module page](super) for examples.
///
/// Its services and their clones share loads: there is one per target in this process.
///
/// # Off
/// [`enabled(false)`](HttpCacheLayerBuilder::enabled) forwards each request. Requests that change something, and
/// handles, still invalidate. To leave the layer out with tower's `option_layer`, give both ways one type of body:
///
/// ```
/// # #[cfg(feature = "axum")]
/// # fn main() -> Result<(), bellwether::ConfigError> {
/// use axum::{Router, body::Body, http::Response, routing::get};
/// use bellwether::MemoryStore;
/// use bellwether_http::HttpCacheLayer;
/// use tower::{ServiceBuilder, util::option_layer};
///
/// # for is_on in [true, false] {
/// let cache = HttpCacheLayer::builder(MemoryStore::new(10_000)).build()?;
/// let body = |response: Response<_>| response.map(Body::new);
/// let cache = ServiceBuilder::new().map_response(body).layer(cache).into_inner();
/// let app: Router = Router::new()
///     .route("/news", get(async || "nothing new"))
///     .layer(option_layer(is_on.then_some(cache)));
/// # drop(app);
/// # }
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "axum"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug)]
pub struct HttpCacheLayer<R = Rfc9111Rules> {
    shared: Arc<LayerState>,
    is_by: PhantomData<fn() -> R>,
}

impl HttpCacheLayer {
    /// Begins a layer over a store, for responses that state their freshness lifetime (RFC 9111).
    pub fn builder<S: Store>(store: S) -> HttpCacheLayerBuilder {
        HttpCacheLayerBuilder::by(Rules::default(), store)
    }

    /// A handle that invalidates stored responses, by URI, group and surrogate key. It can be used
    /// anywhere in the program.
    pub fn handle(&self) -> HttpHandle {
        HttpHandle::new(self.shared.entries())
    }
}

impl HttpCacheLayer<KeyedRules> {
    /// Begins a layer over a store, for handlers that say nothing about caching. The program makes the key.
    ///
    /// A response of status 2xx is stored for the [`ttl`](HttpCacheLayerBuilder::ttl), and 404 and 410 for the
    /// [`not_found_ttl`](HttpCacheLayerBuilder::not_found_ttl). 5xx counts as a failure. Any other response is shared
    /// with the waiters and not stored.
    ///
    /// Lifetimes in a response (`max-age`, `Expires`, `Age`) are ignored, and so is `Cache-Control`
    /// in a request. Prohibitions in a response are respected: `no-store`, `private`, `no-cache`,
    /// `Set-Cookie`, and a `Vary` that names cookies or credentials.
    ///
    /// Requests with credentials bypass the cache, unless the key has them or
    /// [ignores them](RequestKey::ignoring_credentials). An unsafe request removes
    /// [the response under its own key](RequestKey#changes).
    pub fn keyed<S: Store>(store: S, key: RequestKey) -> HttpCacheLayerBuilder<KeyedRules> {
        let checked = key.wrong.result();
        let rules = Rules { key: Some(key), ..Rules::default() };
        let mut builder = HttpCacheLayerBuilder::by(rules, store);
        builder.layer.set_checked(&mut (), checked);
        builder
    }

    /// A handle to the stored responses, by the keys that [`RequestKey`] makes. For a surrogate key
    /// use [`HttpHandle::surrogate_tag`], and for a group [`HttpHandle::group_tags`].
    ///
    /// If the responses of a key vary, its operations are for all variants. What
    /// [`HttpHandle::expire`](super::HttpHandle::expire) says of variants holds for [`Handle::expire`], too.
    pub fn handle(&self) -> Handle {
        self.shared.entries()
    }
}

impl<R> HttpCacheLayer<R> {
    /// What the services of this layer and its clones have done in this process.
    pub fn stats(&self) -> CacheStats {
        self.shared.client.stats()
    }
}

impl<S, R> Layer<S> for HttpCacheLayer<R> {
    type Service = HttpCache<S>;

    fn layer(&self, inner: S) -> HttpCache<S> {
        HttpCache { fetch: OriginFetch { inner, shared: Arc::clone(&self.shared) } }
    }
}

/// The options of an [`HttpCacheLayer`]. Made by [`HttpCacheLayer::builder`] and
/// [`HttpCacheLayer::keyed`].
///
/// What is wrong with one of them is said by [`build`](Self::build).
#[must_use]
pub struct HttpCacheLayerBuilder<R = Rfc9111Rules> {
    layer: ReadThroughLayerBuilder<(), HttpCodec>,
    rules: Rules,
    parts: LayerCore,
    is_by: PhantomData<fn() -> R>,
}

impl HttpCacheLayerBuilder {
    /// Sets how long a response is fresh that neither states a lifetime nor has a `Last-Modified` to
    /// guess one from (RFC 9111, section 4.2.2). Requests with a cookie never share such a response:
    /// see [`needs_public_with_cookies`](Self::needs_public_with_cookies).
    ///
    /// Default: none, so such responses are not stored.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.rules.defaults.ttl = Some(ttl);
        self
    }

    /// Sets how long a stale response is served if the service behind the layer gives no answer, counted
    /// from when it becomes stale. Answers of status 5xx are no such case: see
    /// [`stale_if_error`](Self::stale_if_error). A response that forbids stale use is never served stale.
    ///
    /// Default: zero. A proxy may serve stale responses while it is disconnected (RFC 9111, section
    /// 4.2.4).
    pub fn stale_if_disconnected(mut self, window: Duration) -> Self {
        self.rules.defaults.stale.if_disconnected = window;
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
    pub fn needs_public_with_cookies(mut self, yes: bool) -> Self {
        self.rules.defaults.needs_public = yes;
        self
    }

    /// Follows `CDN-Cache-Control` (RFC 9213): its lifetimes override those of `Cache-Control` and
    /// `Expires`.
    ///
    /// Default: off. An origin means the caches of a CDN by this field, which may have keys of their own,
    /// with the session for example. `private` and `no-store` hold always, in either field.
    pub fn following_cdn_cache_control(mut self) -> Self {
        self.rules.defaults.follows_cdn = true;
        self
    }

    /// Ignores `Cache-Control` and `Pragma` of requests, so that a client cannot have a request of its
    /// own sent to the origin by `no-store` or `no-cache`.
    ///
    /// Default: the fields are followed (RFC 9111, section 5.2.1). `If-Match` and `If-Unmodified-Since`
    /// bypass the cache in any case.
    pub fn ignoring_request_cache_control(mut self) -> Self {
        self.rules.defaults.ignores_request_cache_control = true;
        self
    }

    /// Sets the function that makes the target URI of a request, by which its response is stored.
    /// The request itself is not changed. If the URI has no authority, it gets the authority
    /// and the scheme of the request. A request bypasses the cache if the function returns `None`, or if
    /// its own URI and `Host` name different hosts.
    ///
    /// Default: the URI as the layer sees it, with [what `Router::nest` took
    /// off](super::guide#where-to-put-it). The layer cannot know what other services took off.
    pub fn target_uri<F>(mut self, uri_of: F) -> Self
    where
        F: Fn(&Parts) -> Option<Uri> + Send + Sync + 'static,
    {
        self.parts.target = TargetUri::by(uri_of);
        self
    }
}

impl HttpCacheLayerBuilder<KeyedRules> {
    /// Sets how long a response of status 2xx is fresh.
    ///
    /// Default: zero. Then nothing is stored, and concurrent requests share a response.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.rules.defaults.ttl = Some(ttl);
        self
    }

    /// Sets how long a 404 or 410 is fresh (negative caching).
    ///
    /// Default: zero, so none is stored. A resource is often requested shortly before it is created,
    /// and a stored 404 would hide it.
    pub fn not_found_ttl(mut self, ttl: Duration) -> Self {
        self.rules.not_found_ttl = ttl;
        self
    }
}

impl<R> HttpCacheLayerBuilder<R> {
    fn by<S: Store>(rules: Rules, store: S) -> Self {
        let layer = ReadThroughLayer::without_keys(store).codec(HttpCodec);
        let layer = layer.collect_within(COLLECT_WITHIN).classify_any_error(|error| {
            match is_unreachable(error) {
                true => ErrorClass::SourceFailure,
                false => ErrorClass::Failure,
            }
        });
        let parts = LayerCore {
            target: TargetUri::default(),
            private_targets: Arc::default(),
            retries: Arc::default(),
            unshared: None,
            collecting: BodyBudget::new(COLLECTED_BYTES),
            variants: Arc::default(),
            tag_fields: TagFields::default(),
            finishing: Arc::new(Semaphore::new(MOST_FINISHING)),
            purge_token: None,
        };
        Self { layer, rules, parts, is_by: PhantomData }
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
    /// At most an hour; more counts as that.
    ///
    /// Default: 2 s. Nearly all responses that are worth storing are complete sooner, and a stream
    /// without an end delays its first byte by no more than that. Zero stores only responses that
    /// are complete together with their head.
    pub fn collect_within(mut self, limit: Duration) -> Self {
        self.layer = self.layer.collect_within(limit.min(LONGEST_COLLECTED));
        self
    }

    /// Sets how many bytes all bodies of this layer take together that are read to be stored. Beyond
    /// that, a body passes through to its caller, as one that is too large.
    ///
    /// Default: 64 MiB. A load may go on after its client has left, so the number of clients is no
    /// bound.
    pub fn max_collected_bytes(mut self, most: usize) -> Self {
        self.parts.collecting = BodyBudget::new(most);
        self
    }

    /// Sets how many requests for one target ask the origin at once whose responses cannot be shared:
    /// private ones, errors, and those that are too large or too slow to be stored. Further ones wait
    /// in their order, for the [`load_timeout`](Self::load_timeout) at most, and then get a 503. A
    /// request counts until its response is complete, or until
    /// [`collect_within`](Self::collect_within) after the head. [`build`](Self::build) fails if it is
    /// not from 1 to 1,000,000.
    ///
    /// Default: no bound. With one, users of a private page wait for each other: of 1,000 at once with
    /// a bound of 50, the last ones wait for 19 others.
    pub fn max_unshared_per_target(mut self, most: usize) -> Self {
        let most = within("max unshared requests per target", most, 1, 1_000_000);
        let gates = most.map(|most| Some(Arc::new(TargetGates::new(most))));
        self.layer.set_checked(&mut self.parts.unshared, gates);
        self
    }

    /// Ignores `Cache-Groups` and `Cache-Group-Invalidation` (RFC 9875). Use this if one origin serves
    /// content of parties that must not invalidate each other's responses, and you cannot control
    /// which of these fields they send.
    ///
    /// Default: the fields are followed. A response is stored with the groups that `Cache-Groups` of
    /// the response lists. If an unsafe request succeeds, the groups that `Cache-Group-Invalidation`
    /// of its response lists are invalidated, in the origin of that request. See the
    /// [guide](super::guide::invalidation#groups-of-responses).
    pub fn ignoring_cache_groups(mut self) -> Self {
        self.parts.tag_fields.follows_groups = false;
        self
    }

    /// Reads the surrogate keys of a response from this field, such as `surrogate-key` or
    /// `cache-tag`, between spaces or commas. They are compared byte for byte. Unlike groups, they
    /// hold for all origins behind this layer.
    ///
    /// A response with more than [`Tags::MOST`](bellwether::store::Tags::MOST) surrogate keys and
    /// groups in all is not stored, since it could not be invalidated. That is logged.
    /// [`build`](Self::build) fails if this is not a valid name of a header field, or the name of a
    /// field of groups.
    ///
    /// Default: none, because the name of the field is not standardised. The layer removes the field
    /// from what it returns, because it is not meant for clients: see
    /// [`forwarding_surrogate_keys`](Self::forwarding_surrogate_keys).
    pub fn surrogate_keys(mut self, field: &str) -> Self {
        let fields = self.parts.tag_fields.clone().with_surrogate_keys(field);
        self.layer.set_checked(&mut self.parts.tag_fields, fields);
        self
    }

    /// Leaves the field with the [surrogate keys](Self::surrogate_keys) in responses, for a CDN in
    /// front of this layer.
    ///
    /// Default: the layer removes it.
    pub fn forwarding_surrogate_keys(mut self) -> Self {
        self.parts.tag_fields.forwards_surrogate_keys = true;
        self
    }

    /// Answers `PURGE` requests that have this token.
    ///
    /// | request | what is purged |
    /// |---|---|
    /// | `PURGE /item/7` | the response of this URI, with its variants; with keys of your own, the response under the key of this request |
    /// | the same with `Cache-Groups: "shelf-7"` | these groups of the origin of the URI, and not the URI |
    /// | the same with the field of [surrogate keys](Self::surrogate_keys) | the responses with these keys, and not the URI |
    /// | any of these with `Soft-Purge: 1` | the responses become stale instead, variants too, as by [`HttpHandle::expire`](super::HttpHandle::expire) |
    ///
    /// Every `PURGE` needs `Authorization: Bearer <token>`. The token is compared in constant time, and
    /// the layer holds only its hash. A key of your own that has `Authorization` in it cannot be purged
    /// like this.
    ///
    /// | status | meaning |
    /// |---|---|
    /// | 200 | it is purged; the text says `nothing was stored` if the URI had no response |
    /// | 400 | the request does not say what to purge, or how; the text says what is wrong |
    /// | 401 | there is no token, or another one |
    /// | 503 | the store failed: send it again |
    ///
    /// It does not limit how often a client may try. Use HTTPS, and a long random token.
    ///
    /// ```
    /// # #[cfg(feature = "axum")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use axum::{Router, routing::get};
    /// use bellwether::MemoryStore;
    /// use bellwether_http::HttpCacheLayer;
    /// # use axum::body::Body;
    /// # use http::{Request, StatusCode};
    /// # use tower::ServiceExt;
    /// # let token = "0123456789abcdef0123456789abcdef";
    ///
    /// let cache = HttpCacheLayer::builder(MemoryStore::new(10_000))
    ///     .surrogate_keys("surrogate-key")
    ///     .purge_token(token) // 32 random characters from your configuration
    ///     .build()?;
    /// let app: Router = Router::new().route("/news", get(async || "news")).layer(cache);
    ///
    /// let request = Request::builder().method("PURGE").uri("https://shop.example/news");
    /// let request = request.header("authorization", format!("Bearer {token}"));
    /// let request = request.header("surrogate-key", "shelf-7 shelf-8").header("soft-purge", "1");
    /// let response = app.oneshot(request.body(Body::empty())?).await?;
    /// assert_eq!(response.status(), StatusCode::OK);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "axum"))]
    /// # fn main() {}
    /// ```
    ///
    /// [`build`](Self::build) fails if the token is shorter than 16 bytes or longer than 1,024, or has other
    /// characters than visible ASCII. The error does not repeat it.
    ///
    /// Default: none, so `PURGE` is a method like any other that may change something.
    pub fn purge_token(mut self, token: &str) -> Self {
        self.layer.set_checked(&mut self.parts.purge_token, BearerToken::new(token).map(Some));
        self
    }

    delegate_load_options!();

    /// Adds request header fields that are credentials, in addition to `authorization`,
    /// `proxy-authorization`, `cookie`, `x-api-key` and `x-auth-token`. The
    /// [guide](super::guide#users-cookies-and-tokens) says how requests with credentials are answered.
    ///
    /// [`build`](Self::build) fails if one is not a valid name of a header field.
    pub fn credentials<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let credentials = &mut self.rules.defaults.credentials;
        let more = names.into_iter().map(field_name).collect::<Result<Vec<_>, _>>();
        let more = more.map(|names| credentials.with(names));
        self.layer.set_checked(credentials, more);
        self
    }

    /// Sets response header fields that are about one request, such as `x-request-id` or `server-timing`.
    /// The caller whose request loaded a response gets them. They are not stored, so waiters and hits get
    /// none. Do not name a field that the body or the cache depends on, such as `content-type` or `vary`.
    ///
    /// [`build`](Self::build) fails if one is not a valid name of a header field.
    ///
    /// Default: none. A cache stores all fields that are not about a connection (RFC 9111, section 3.1), and
    /// an origin can name others by `no-cache="x-request-id"`.
    pub fn unstored_fields<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names = names.into_iter().map(field_name).collect();
        self.layer.set_checked(&mut self.rules.defaults.unstored, names);
        self
    }

    /// Sets how long a stale response is served while it is revalidated (RFC 5861, section 3), counted
    /// from when it becomes stale.
    ///
    /// By the [rules of RFC 9111](Rfc9111Rules), a response can state that time itself, and one that
    /// forbids stale use (`must-revalidate`, for example) is never served stale.
    ///
    /// Default: zero.
    pub fn stale_while_revalidate(mut self, window: Duration) -> Self {
        self.rules.defaults.stale.while_revalidate = window;
        self
    }

    /// Sets how long a stale response is served if the service behind the layer fails, answers with
    /// status 5xx or not at all (RFC 5861, section 4), counted from when it becomes stale.
    ///
    /// By the [rules of RFC 9111](Rfc9111Rules), a response can state that time itself, and one that
    /// forbids stale use is never served stale.
    ///
    /// Default: zero.
    pub fn stale_if_error(mut self, window: Duration) -> Self {
        self.rules.defaults.stale.if_error = window;
        self
    }

    /// The layer.
    ///
    /// # Errors
    /// If an option is wrong, or the key: the first one.
    pub fn build(self) -> Result<HttpCacheLayer<R>, ConfigError> {
        let Self { layer, rules, parts, is_by } = self;
        let client = AdapterCache::new(&layer.build()?);
        Ok(HttpCacheLayer { shared: Arc::new(LayerState { client, rules, parts }), is_by })
    }
}

/// Names of header fields.
const COLLECT_WITHIN: Duration = Duration::from_secs(2);

const LONGEST_COLLECTED: Duration = Duration::from_secs(60 * 60);

/// How many unsafe requests are finished at once after their callers have left.
const MOST_FINISHING: usize = 64;

/// 64 MiB.
const COLLECTED_BYTES: usize = 64 * 1024 * 1024;

bellwether::debug_fields! { HttpCacheLayerBuilder<R> => |it| layer = it.layer, rules = it.rules }
