//! `UnsafeRequest`: a request that may change something, and what it invalidates.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bellwether::{BoxError, Key};
use bellwether_body::CacheBody;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tower::ServiceExt;

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
/// If it is dropped after it was sent, a task finishes the request within the load timeout, and its
/// status decides. A layer has a bound on such tasks. Beyond it, and if the request gets no response,
/// the stored responses of its target become stale. If it is dropped earlier, it is never sent.
pub(super) struct UnsafeRequest<B: Send + 'static> {
    /// `None` while it is polled, and once it has its response. So one that has panicked is not polled
    /// again.
    progress: Option<SendProgress<B>>,
    shared: LayerState,
}

enum SendProgress<B: Send + 'static> {
    /// The origin is not ready for the request.
    Waiting(Sending<B>),
    /// The origin has the request.
    Sent(Forwarding<B>),
}

/// The response of the origin.
type Forwarding<B> = BoxFuture<'static, Response<CacheBody<B>>>;

/// Sends a request once the origin is ready for it. If the origin fails before that, the response says
/// so.
type Sending<B> = BoxFuture<'static, Result<Forwarding<B>, Response<CacheBody<B>>>>;

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
        let sending = Box::pin(send(inner, shared.clone(), request, invalidation));
        Self { progress: Some(SendProgress::Waiting(sending)), shared }
    }
}

impl<B: Send + 'static> Future for UnsafeRequest<B> {
    type Output = Response<CacheBody<B>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match self.progress.take() {
                Some(SendProgress::Waiting(mut sending)) => match sending.poll_unpin(cx) {
                    Poll::Ready(Ok(sent)) => self.progress = Some(SendProgress::Sent(sent)),
                    Poll::Ready(Err(failed)) => return Poll::Ready(failed),
                    Poll::Pending => {
                        self.progress = Some(SendProgress::Waiting(sending));
                        return Poll::Pending;
                    }
                },
                Some(SendProgress::Sent(mut running)) => {
                    let polled = running.poll_unpin(cx);
                    if polled.is_pending() {
                        self.progress = Some(SendProgress::Sent(running));
                    }
                    return polled;
                }
                None => panic!("polled after it was ready"),
            }
        }
    }
}

impl<B: Send + 'static> Drop for UnsafeRequest<B> {
    fn drop(&mut self) {
        let Some(SendProgress::Sent(running)) = self.progress.take() else { return };
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

async fn send<S, ReqB, B>(
    mut inner: S,
    shared: LayerState,
    request: Request<ReqB>,
    invalidation: InvalidationTarget,
) -> Result<Forwarding<B>, Response<CacheBody<B>>>
where
    S: Origin<ReqB, B>,
    ReqB: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
{
    let ready = inner.ready().await.map_err(Into::<BoxError>::into);
    let ready = ready.map_err(|error| refusal::of_origin(&*error))?;
    let method = request.method().clone();
    let unknown = UnknownOutcome(Some((shared.clone(), invalidation.own_keys())));
    let answered = ready.call(request);
    Ok(Box::pin(finish(answered, unknown, shared, method, invalidation)))
}

async fn finish<F, B, E>(
    answered: F,
    mut unknown: UnknownOutcome,
    shared: LayerState,
    method: Method,
    invalidation: InvalidationTarget,
) -> Response<CacheBody<B>>
where
    F: Future<Output = Result<Response<B>, E>> + Send,
    E: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
{
    match answered.await.map_err(Into::<BoxError>::into) {
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
