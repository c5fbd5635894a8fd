//! `PURGE`: a layer that removes stored responses for clients that prove their right to it.

mod future;
mod purger;
mod token;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bellwether::ConfigError;
use bellwether_body::CacheBody;
use http::{Request, Response};
use tower::{Layer, Service};

pub use self::future::PurgeFuture;
use self::purger::Purger;
use self::token::BearerToken;
use super::handle::HttpHandle;
use super::mode::Mode;
use super::tag_fields::TagFields;
use super::target::TargetUri;

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
/// | the same with the field of [surrogate keys](super::HttpCacheLayer::surrogate_keys) | the responses with these keys, and not the URI |
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
/// let cache = HttpCacheLayer::new(MemoryStore::new(10_000)).surrogate_keys("surrogate-key")?;
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
    pub(super) fn new(
        token: &str,
        handle: HttpHandle,
        mode: Mode,
        target: TargetUri,
        tag_fields: TagFields,
    ) -> Result<Self, ConfigError> {
        let token = BearerToken::new(token)?;
        Ok(Self { purger: Arc::new(Purger { token, handle, mode, target, tag_fields }) })
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
            return PurgeFuture::passing(self.inner.call(request));
        }
        let (parts, _) = request.into_parts();
        let purger = Arc::clone(&self.purger);
        PurgeFuture::purging(Box::pin(async move { purger.purge(parts).await }))
    }
}

impl<S: fmt::Debug> fmt::Debug for Purge<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Purge").field("inner", &self.inner).finish_non_exhaustive()
    }
}
