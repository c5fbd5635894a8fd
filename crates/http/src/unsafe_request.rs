//! `UnsafeRequest`: a request that may change something, and what it invalidates.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bellwether::{BoxError, Key};
use bellwether_body::CacheBody;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tower::ServiceExt;

use super::beginning::Forwarding;
use super::origin::Origin;
use super::refusal;
use super::report::Report;
use super::rules;
use super::shared::LayerState;
use super::target::Target;

/// A request with an unsafe method. If it succeeds, stored responses are invalidated (RFC 9111,
/// section 4.4).
///
/// # Cancel safety
/// If it is dropped after it was polled, a task finishes the request within the load timeout, and its
/// status decides. A layer has a bound on such tasks. Beyond it, and if the request gets no response,
/// the stored responses of its target become stale.
pub(super) struct UnsafeRequest<B: Send + 'static> {
    /// The exchange with the origin, until it has its response.
    running: Option<Forwarding<B>>,
    was_polled: bool,
    shared: LayerState,
}

impl<B> UnsafeRequest<B>
where
    B: Body<Data = Bytes> + Send + 'static,
{
    pub(super) fn new<S, ReqB>(
        inner: S,
        shared: LayerState,
        request: Request<ReqB>,
        invalidation: InvalidationTarget,
    ) -> Self
    where
        S: Origin<ReqB, B>,
        ReqB: Send + 'static,
    {
        let running: Forwarding<B> =
            Box::pin(forward(inner, shared.clone(), request, invalidation));
        Self { running: Some(running), was_polled: false, shared }
    }
}

impl<B: Send + 'static> Future for UnsafeRequest<B> {
    type Output = Response<CacheBody<B>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.was_polled = true;
        let Some(running) = self.running.as_mut() else { panic!("polled after it was ready") };
        let response = ready!(running.poll_unpin(cx));
        self.running = None;
        Poll::Ready(response)
    }
}

impl<B: Send + 'static> Drop for UnsafeRequest<B> {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        // A future that has panicked cannot be polled again.
        if !self.was_polled || std::thread::panicking() {
            return;
        }
        let permit = Arc::clone(&self.shared.finishing).try_acquire_owned();
        if let (Ok(permit), Ok(runtime)) = (permit, Handle::try_current()) {
            let limit = self.shared.client.load_timeout();
            runtime.spawn(async move {
                _ = timeout(limit, running).await;
                drop(permit);
            });
        }
    }
}

async fn forward<S, ReqB, B>(
    inner: S,
    shared: LayerState,
    request: Request<ReqB>,
    invalidation: InvalidationTarget,
) -> Response<CacheBody<B>>
where
    S: Origin<ReqB, B>,
    B: Body<Data = Bytes> + Send + 'static,
{
    let method = request.method().clone();
    let mut unknown = UnknownOutcome(Some((shared.clone(), invalidation.own_keys())));
    match inner.oneshot(request).await.map_err(Into::<BoxError>::into) {
        Ok(response) => {
            unknown.0 = None;
            let (status, headers) = (response.status(), response.headers());
            let keys = invalidation.keys(&method, status, headers);
            let target = invalidation.target();
            let tags = shared.tag_fields.invalidated_by(&method, target, status, headers);
            if !keys.is_empty() || !tags.is_empty() {
                // In a task, since the request has succeeded even if its client leaves now.
                _ = tokio::spawn(async move { shared.invalidate(keys, tags).await }).await;
            }
            let report = Report::forwarded("method", response.status());
            let mut response = response.map(CacheBody::passing);
            report.add_to(&mut response);
            response
        }
        // The origin may have processed the request, so `unknown` is dropped with the keys.
        Err(error) => refusal::of_origin(&*error),
    }
}

/// Makes what is stored under these keys stale when it is dropped: an unsafe request may have
/// succeeded. Its client may have had no right to it, so stale windows stay.
struct UnknownOutcome(Option<(LayerState, HashSet<Key>)>);

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
pub(super) enum InvalidationTarget {
    /// The stored responses of a target, and of the URIs that the response names.
    Target(Target),
    /// The response that is stored under a key. The target tells whose groups the response may
    /// invalidate.
    Key { key: Key, target: Option<Target> },
}

impl InvalidationTarget {
    /// The target of the request, if it is certain.
    fn target(&self) -> Option<&Target> {
        match self {
            Self::Target(target) => Some(target),
            Self::Key { target, .. } => target.as_ref(),
        }
    }

    fn own_keys(&self) -> HashSet<Key> {
        match self {
            Self::Target(target) => target.keys(),
            Self::Key { key, .. } => [key.clone()].into(),
        }
    }

    fn keys(&self, method: &Method, status: StatusCode, response: &HeaderMap) -> HashSet<Key> {
        match self {
            Self::Target(target) => {
                let uris = target.uris();
                let removed =
                    uris.iter().flat_map(|uri| rules::invalidated(method, uri, status, response));
                let removed = removed.filter_map(|uri| Target::of_uri(&uri));
                removed.flat_map(|target| target.keys()).collect()
            }
            Self::Key { key, .. } => {
                let no_uri = http::Uri::default();
                let is_changed =
                    !rules::invalidated(method, &no_uri, status, &HeaderMap::new()).is_empty();
                is_changed.then(|| key.clone()).into_iter().collect()
            }
        }
    }
}
