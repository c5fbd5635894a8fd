//! `PURGE`: a layer that removes stored responses for clients that prove their right to it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bellwether::adapter::{BoxFuture, result_of_all, warn_throttled, within};
use bellwether::service::Handle;
use bellwether::store::Digest;
use bellwether::{CacheError, ConfigError, Key, Tag};
use bellwether_body::CacheBody;
use futures_util::future::join_all;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use pin_project::pin_project;
use subtle::ConstantTimeEq;
use tower::{Layer, Service};

use super::layer_state::LayerState;
use super::rules::{self, CACHE_GROUPS};

/// Answers `PURGE` requests, and passes all others on. Made by
/// [`HttpCacheLayer::purge`](super::HttpCacheLayer::purge), since without it there is no `PURGE`.
///
/// Put it directly above the cache, so that both see the same URI and the same parameters of the
/// route. On a single route of axum, both are one layer: `.layer((purge, cache))`.
///
/// | request | what is purged |
/// |---|---|
/// | `PURGE /item/7` | the response of this URI, with its variants; with keys of your own, the response under the key of this request |
/// | the same with `Cache-Groups: "shelf-7"` | these groups of the origin of the URI, and not the URI |
/// | the same with the field of [surrogate keys](super::HttpCacheLayerBuilder::surrogate_keys) | the responses with these keys, and not the URI |
/// | any of these with `Soft-Purge: 1` | the responses become stale instead, variants too, as by [`HttpHandle::expire`](super::HttpHandle::expire) |
///
/// Every `PURGE` needs `Authorization: Bearer <token>`. The token is compared in constant time, and
/// this layer holds only its hash. A key of your own that has `Authorization` in it cannot be purged
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
///
/// let cache = HttpCacheLayer::builder(MemoryStore::new(10_000))
///     .surrogate_keys("surrogate-key")
///     .build()?;
/// # let token = "0123456789abcdef0123456789abcdef";
/// let purge = cache.purge(token)?; // 32 random characters from your configuration
/// let app: Router = Router::new().route("/news", get(async || "news")).layer(cache).layer(purge);
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
#[derive(Clone, Debug)]
pub struct PurgeLayer {
    purger: Arc<Purger>,
}

impl PurgeLayer {
    pub(super) fn new(token: &str, shared: &Arc<LayerState>) -> Result<Self, ConfigError> {
        let token = BearerToken::new(token)?;
        let (entries, shared) = (shared.entries(), Arc::clone(shared));
        Ok(Self { purger: Arc::new(Purger { token, entries, shared }) })
    }
}

impl<S> Layer<S> for PurgeLayer {
    type Service = Purge<S>;

    fn layer(&self, inner: S) -> Purge<S> {
        Purge { inner, purger: Arc::clone(&self.purger) }
    }
}

/// A service that answers `PURGE` requests, and passes all others on. Made by [`PurgeLayer`].
#[derive(Clone)]
pub struct Purge<S> {
    inner: S,
    purger: Arc<Purger>,
}

impl<S, ReqB, B> Service<Request<ReqB>> for Purge<S>
where
    S: Service<Request<ReqB>, Response = Response<B>>,
{
    type Response = Response<CacheBody<B>>;
    type Error = S::Error;
    type Future = PurgeFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqB>) -> Self::Future {
        if request.method().as_str() != "PURGE" {
            return PurgeFuture(PurgeState::Passing(self.inner.call(request)));
        }
        let (parts, _) = request.into_parts();
        let purger = Arc::clone(&self.purger);
        let purged = async move { purger.purge(parts).await.unwrap_or_else(|refused| refused) };
        PurgeFuture(PurgeState::Purging(Box::pin(purged)))
    }
}

bellwether::debug_fields! { Purge<S> where S: Debug => |it| inner = it.inner }

/// Does what a `PURGE` request asks for.
#[derive(Debug)]
struct Purger {
    token: BearerToken,
    entries: Handle,
    shared: Arc<LayerState>,
}

/// The status of the response to a `PURGE` request, and its text.
type PurgeOutcome = (StatusCode, &'static str);

impl Purger {
    /// Does what a request asks for.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, the responses may be purged or not.
    async fn purge(&self, mut parts: Parts) -> Result<PurgeOutcome, PurgeOutcome> {
        if !self.token.is_in(&parts.headers) {
            return Err((StatusCode::UNAUTHORIZED, "PURGE needs a bearer token\n"));
        }
        let is_soft = is_soft(&parts.headers)?;
        if let Some(tags) = self.tags(&mut parts)? {
            self.purge_tags(&tags, is_soft).await.map_err(failed)?;
            return Ok(PURGED);
        }
        let keys = self.keys(parts)?;
        let purged = match is_soft {
            true => self.entries.expire_many(keys).await,
            false => self.entries.invalidate_many(keys).await,
        };
        match purged.map_err(failed)? {
            0 => Ok((StatusCode::OK, "nothing was stored\n")),
            _ => Ok(PURGED),
        }
    }

    /// The tags of the groups and of the surrogate keys that a request names.
    fn tags(&self, parts: &mut Parts) -> Result<Option<Vec<Tag>>, PurgeOutcome> {
        let mut tags = self.shared.parts.tag_fields.surrogate_tags(&parts.headers);
        if parts.headers.contains_key(CACHE_GROUPS) {
            tags.get_or_insert_default().extend(self.group_tags(parts)?);
        }
        match tags {
            Some(tags) if tags.is_empty() => refused("no group and no surrogate key is named\n"),
            tags => Ok(tags),
        }
    }

    fn group_tags(&self, parts: &mut Parts) -> Result<Vec<Tag>, PurgeOutcome> {
        if !self.shared.parts.tag_fields.follows_groups {
            return refused("this cache ignores groups\n");
        }
        let Some(groups) = rules::listed(&parts.headers, &CACHE_GROUPS) else {
            return refused("Cache-Groups is not a list of strings, as in \"a\", \"b\"\n");
        };
        let Some(target) = self.shared.parts.target.target_of(parts) else {
            return refused(NO_TARGET);
        };
        Ok(groups.iter().flat_map(|group| target.groups(group)).collect())
    }

    /// The keys under which a response to this request is stored.
    fn keys(&self, mut parts: Parts) -> Result<Vec<Key>, PurgeOutcome> {
        let Some(keyed) = &self.shared.rules.keyed else {
            let Some(target) = self.shared.parts.target.target_of(&mut parts) else {
                return refused(NO_TARGET);
            };
            return Ok(target.keys().into_iter().collect());
        };
        match keyed.key.derived(&mut parts) {
            Ok(Some(key)) => Ok(vec![key]),
            Ok(None) => refused("this request has no cache key\n"),
            Err(_) => refused("the route lacks a parameter of the cache key\n"),
        }
    }

    async fn purge_tags(&self, tags: &[Tag], is_soft: bool) -> Result<(), CacheError> {
        let purged = |tag| async move {
            match is_soft {
                true => self.entries.expire_tag(tag, Duration::ZERO).await,
                false => self.entries.invalidate_tag(tag).await,
            }
        };
        result_of_all(join_all(tags.iter().map(purged)).await)
    }
}

const PURGED: PurgeOutcome = (StatusCode::OK, "purged\n");

#[allow(clippy::needless_pass_by_value, reason = "it maps an error")]
fn failed(error: CacheError) -> PurgeOutcome {
    warn_throttled!(target: "bellwether::http", %error, "a response was perhaps not purged");
    (StatusCode::SERVICE_UNAVAILABLE, "the store of the cache failed\n")
}

fn refused<T>(reason: &'static str) -> Result<T, PurgeOutcome> {
    Err((StatusCode::BAD_REQUEST, reason))
}

/// Whether the responses are to become stale only. What cannot be read is refused, since a client
/// that wants a soft purge must not get a hard one.
fn is_soft(headers: &HeaderMap) -> Result<bool, PurgeOutcome> {
    let mut values = headers.get_all(SOFT_PURGE).iter().map(|value| value.as_bytes());
    match (values.next(), values.next()) {
        (None, _) | (Some(b"0"), None) => Ok(false),
        (Some(b"1"), None) => Ok(true),
        _ => refused("Soft-Purge is neither 1 nor 0\n"),
    }
}

const SOFT_PURGE: HeaderName = HeaderName::from_static("soft-purge");

const NO_TARGET: &str = "the target of this request is uncertain\n";

/// The hash of a secret that requests prove to know (RFC 6750, section 2.1).
///
/// Hashes have one length and say nothing about the secret, so neither the time of a comparison nor
/// the memory of this process does.
struct BearerToken(Digest);

impl BearerToken {
    /// # Errors
    /// If the token is too short or too long, or cannot be sent as it is.
    fn new(token: &str) -> Result<Self, ConfigError> {
        within("bytes of the purge token", token.len(), SHORTEST, LONGEST)?;
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let reason = "it has other characters than visible ASCII";
            return Err(ConfigError::Key { given: "purge token".to_owned(), reason });
        }
        Ok(Self(hash(token.as_bytes())))
    }

    /// Whether a request has this token.
    fn is_in(&self, request: &HeaderMap) -> bool {
        let mut values =
            request.get_all(header::AUTHORIZATION).iter().map(|value| value.as_bytes());
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        let scheme_end = value.iter().position(|byte| *byte == b' ').unwrap_or(value.len());
        let (scheme, token) = value.split_at(scheme_end);
        let given = hash(token.trim_ascii());
        let is_same = given.as_bytes()[..].ct_eq(&self.0.as_bytes()[..]);
        scheme.eq_ignore_ascii_case(b"bearer") && bool::from(is_same)
    }
}

fn hash(token: &[u8]) -> Digest {
    Key::of("purge-token").with(token).digest()
}

/// Shows nothing of the token.
impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken")
    }
}

/// The shortest token, in bytes: 16 random hexadecimal digits are 64 bits.
const SHORTEST: usize = 16;

const LONGEST: usize = 1024;

/// The response to one request, as a future. Made by [`Purge`](super::Purge).
///
/// # Cancel safety
/// If the future of a `PURGE` is dropped, the responses may be purged or not. Other requests are
/// dropped as the service behind it says.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct PurgeFuture<F>(#[pin] PurgeState<F>);

#[pin_project(project = PurgeProjection)]
enum PurgeState<F> {
    Passing(#[pin] F),
    Purging(BoxFuture<'static, PurgeOutcome>),
}

impl<F, B, E> Future for PurgeFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<CacheBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.project().0.project() {
            PurgeProjection::Passing(answered) => {
                ready!(answered.poll(cx)).map(|response| response.map(CacheBody::passing))
            }
            PurgeProjection::Purging(purged) => Ok(response(ready!(purged.as_mut().poll(cx)))),
        })
    }
}

fn response<B>((status, text): PurgeOutcome) -> Response<CacheBody<B>> {
    let mut response = Response::new(CacheBody::stored(text.into(), None));
    *response.status_mut() = status;
    let mut insert = |name: HeaderName, value| {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    };
    insert(header::CONTENT_TYPE, "text/plain; charset=utf-8");
    insert(header::CACHE_CONTROL, "no-store");
    if status == StatusCode::UNAUTHORIZED {
        insert(header::WWW_AUTHENTICATE, "Bearer");
    }
    response
}

bellwether::debug_fields! { PurgeFuture<F> }

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const SECRET: &str = "0123456789abcdef-secret";

    fn takes(values: &[&str]) -> bool {
        let mut request = HeaderMap::new();
        for value in values {
            request.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        BearerToken::new(SECRET).unwrap().is_in(&request)
    }

    #[test]
    fn only_the_very_token_is_taken() {
        let good = format!("Bearer {SECRET}");
        assert!(takes(&[&good]) && takes(&[&format!("bearer  {SECRET}")]));
        for wrong in ["", "Bearer", "Bearer ", SECRET, &format!("Basic {SECRET}")] {
            assert!(!takes(&[wrong]), "{wrong:?}");
        }
        assert!(!takes(&[&format!("{good}x")]) && !takes(&[&good[..good.len() - 1]]));
        assert!(!takes(&[]) && !takes(&[&good, &good]) && !takes(&[&good, "Bearer x"]));
    }

    #[test]
    fn a_token_that_is_too_short_or_cannot_be_sent_is_refused() {
        for wrong in ["", "short", &"x".repeat(2_000), "0123456789abcdef\n", "0123456789 abcdef"] {
            let error = BearerToken::new(wrong).unwrap_err().to_string();
            assert!(error.contains("purge token"), "{error}");
            assert!(wrong.is_empty() || !error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        assert_eq!(format!("{:?}", BearerToken::new(SECRET).unwrap()), "BearerToken");
    }
}
