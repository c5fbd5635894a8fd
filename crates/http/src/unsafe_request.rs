//! Requests that may change something, and what they invalidate.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bellwether::{BoxError, Key};
use bellwether_body::CacheBody;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tower::ServiceExt;

use super::cache_request::{Origin, OriginBody};
use super::fetch::OriginFetch;
use super::layer_state::LayerState;
use super::report::Report;
use super::target::Target;
use super::{refusal, rules};

/// Sends a request with an unsafe method once the origin is ready for it. If it succeeds, stored
/// responses are invalidated (RFC 9111, section 4.4).
///
/// # Cancel safety
/// If it is dropped after it was sent, a task finishes the request within the load timeout, and its
/// status decides. A layer has a bound on such tasks. Beyond it, and if the request gets no response,
/// the stored responses of its target become stale. If it is dropped earlier, it is never sent.
pub(super) async fn send<S: Origin<Q, B>, Q: 'static, B: OriginBody>(
    fetch: OriginFetch<S>,
    request: Request<Q>,
    invalidation: InvalidationTarget,
) -> Response<CacheBody<B>> {
    let OriginFetch { mut inner, shared } = fetch;
    let ready = match inner.ready().await.map_err(Into::<BoxError>::into) {
        Ok(ready) => ready,
        Err(error) => return refusal::of_origin(&*error),
    };
    let method = request.method().clone();
    let unknown = UnknownOutcome(Some((Arc::clone(&shared), invalidation.own_keys())));
    let answered = ready.call(request);
    let finished = finish(answered, unknown, Arc::clone(&shared), method, invalidation);
    SentRequest { running: Some(Box::pin(finished)), shared }.await
}

/// A request that the origin has.
struct SentRequest<B: Send + 'static> {
    /// `None` while it is polled, and once it has its response. So one that has panicked is not polled
    /// again.
    running: Option<BoxFuture<'static, Response<CacheBody<B>>>>,
    shared: Arc<LayerState>,
}

impl<B: Send + 'static> Future for SentRequest<B> {
    type Output = Response<CacheBody<B>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(mut running) = self.running.take() else { panic!("polled after it was ready") };
        let polled = running.poll_unpin(cx);
        if polled.is_pending() {
            self.running = Some(running);
        }
        polled
    }
}

impl<B: Send + 'static> Drop for SentRequest<B> {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        let permit = Arc::clone(&self.shared.parts.finishing).try_acquire_owned();
        if let (Ok(permit), Ok(runtime)) = (permit, Handle::try_current()) {
            let limit = self.shared.client.load_timeout();
            runtime.spawn(async move {
                _ = timeout(limit, running).await;
                drop(permit);
            });
        }
    }
}

async fn finish<F, B, E>(
    answered: F,
    mut unknown: UnknownOutcome,
    shared: Arc<LayerState>,
    method: Method,
    invalidation: InvalidationTarget,
) -> Response<CacheBody<B>>
where
    F: Future<Output = Result<Response<B>, E>> + Send,
    E: Into<BoxError>,
    B: OriginBody,
{
    match answered.await.map_err(Into::<BoxError>::into) {
        Ok(response) => {
            unknown.0 = None;
            let (status, headers) = (response.status(), response.headers());
            let keys = invalidation.keys(&method, status, headers);
            let target = invalidation.target.as_ref();
            let tags = shared.parts.tag_fields.invalidated_by(&method, target, status, headers);
            if !keys.is_empty() || !tags.is_empty() {
                // In a task, since the request has succeeded even if its client leaves now.
                _ = tokio::spawn(async move { shared.invalidate(keys, tags).await }).await;
            }
            Report::forwarded(("method", None), response)
        }
        // The origin may have processed the request, so `unknown` is dropped with the keys.
        Err(error) => refusal::of_origin(&*error),
    }
}

/// Makes what is stored under these keys stale when it is dropped: an unsafe request may have
/// succeeded. Its client may have had no right to it, so stale windows stay.
struct UnknownOutcome(Option<(Arc<LayerState>, HashSet<Key>)>);

impl Drop for UnknownOutcome {
    fn drop(&mut self) {
        if let Some((shared, keys)) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move { shared.expire_if_in_use(keys).await });
        }
    }
}

/// What an unsafe request invalidates.
#[derive(Debug)]
pub(super) struct InvalidationTarget {
    /// The key of its response, if the program makes keys. Without it, the responses of the target and of
    /// the URIs that the response names are invalidated.
    pub(super) key: Option<Key>,
    /// The target of the request, if it is certain. It tells whose groups the response may invalidate.
    pub(super) target: Option<Target>,
}

impl InvalidationTarget {
    fn own_keys(&self) -> HashSet<Key> {
        match (&self.key, &self.target) {
            (Some(key), _) => [key.clone()].into(),
            (None, target) => target.as_ref().map(Target::keys).unwrap_or_default(),
        }
    }

    fn keys(&self, method: &Method, status: StatusCode, response: &HeaderMap) -> HashSet<Key> {
        if !rules::succeeds_unsafely(method, status) {
            return HashSet::new();
        }
        let Some(target) = self.target.as_ref().filter(|_| self.key.is_none()) else {
            return self.own_keys();
        };
        let uris = target.uris();
        let removed = uris.iter().flat_map(|uri| rules::invalidated(uri, response));
        let removed = removed.filter_map(|uri| Target::of_uri(&uri));
        removed.flat_map(|target| target.keys()).collect()
    }
}
