//! `OriginFetch`: the loader of the cache, which asks the origin.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use bellwether::{BoxError, CacheError};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use http::{Request, Response, StatusCode};
use tokio::time::timeout;
use tower::{Service, ServiceExt};

use super::answered_fetch::AnsweredFetch;
use super::cache_request::{CacheRequest, FetchRequest, Origin, OriginBody, check_not_modified};
use super::codec::CacheAnswer;
use super::layer_state::LayerState;
use super::rules::{self, Times};
use super::stored_response::StoredResponse;

/// Asks the origin, and decides whether its response is stored.
#[derive(Clone)]
pub(super) struct OriginFetch<S> {
    pub(super) inner: S,
    pub(super) shared: Arc<LayerState>,
}

impl<S, B> Service<FetchRequest> for OriginFetch<S>
where
    S: Service<Request<()>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: OriginBody,
{
    type Response = CacheAnswer<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<CacheAnswer<B>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, fetch_request: FetchRequest) -> Self::Future {
        // Readiness belongs to this instance, so the future takes it and leaves the clone.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(fetch(inner, self.shared.clone(), fetch_request))
    }
}

async fn fetch<S: Origin<(), B>, B: OriginBody>(
    inner: S,
    shared: Arc<LayerState>,
    fetch_request: FetchRequest,
) -> Result<CacheAnswer<B>, BoxError> {
    let for_others = OriginFetch { inner: inner.clone(), shared: Arc::clone(&shared) };
    let answer = fetch_for_one(inner, shared, &fetch_request).await?;
    if answer.is_unconfirmed() && fetch_request.tries_others {
        return Ok(fetch_for_others(for_others, &fetch_request).await.unwrap_or(answer));
    }
    Ok(answer)
}

/// Asks the origin with requests that wait for this load, since its error may be that of its own request
/// alone. The first response that is stored is the answer of the load.
async fn fetch_for_others<S: Origin<(), B>, B: OriginBody>(
    fetch: OriginFetch<S>,
    fetch_request: &FetchRequest,
) -> Option<CacheAnswer<B>> {
    let FetchRequest { key, cache_request, vary_index, .. } = fetch_request;
    let others = fetch.shared.parts.retries.others(key, cache_request);
    let mut loads: FuturesUnordered<_> = others
        .iter()
        .map(|other| {
            let mut of_other = FetchRequest::new(other, vary_index.clone(), false);
            of_other.tries_others = false;
            fetch.shared.client.load_alone(Some(key), fetch.clone(), of_other)
        })
        .collect();
    while let Some(loaded) = loads.next().await {
        if let Ok(Ok(answer)) = loaded
            && answer.is_stored()
        {
            return Some(answer);
        }
    }
    None
}

async fn fetch_for_one<S: Origin<(), B>, B: OriginBody>(
    mut inner: S,
    shared: Arc<LayerState>,
    fetch_request: &FetchRequest,
) -> Result<CacheAnswer<B>, BoxError> {
    let FetchRequest { key, cache_request, is_alone, .. } = fetch_request;
    let stored_response = StoredResponse::of::<B>(&shared, fetch_request).await;
    let load = AnsweredFetch { shared: &shared, fetch_request, stored_response: &stored_response };
    let (request, validates) = stored_response.request_for(fetch_request);
    let mut has_conditions = rules::asks_if_modified(request.headers());
    let mut retry = inner.clone();
    let sent = send(&mut inner, request, cache_request, &shared);
    let limit = shared.client.load_timeout();
    let late = |_| CacheError::load_timed_out(key, limit);
    let (mut response, mut times) = match is_alone {
        true => sent.await?,
        // For the head of the response.
        false => timeout(limit, sent).await.map_err(late)??,
    };
    if response.status() == StatusCode::NOT_MODIFIED && validates {
        if let Some((cached, headers)) = stored_response.validated_by(response.headers()) {
            return load.validated(&cached, headers, times).await;
        }
        // The 304 is about another response than the stored one.
        has_conditions = false;
        let request =
            fetch_request.request(rules::without_conditions(&cache_request.parts.headers));
        let ready = retry.ready().await.map_err(Into::into)?;
        (response, times) = send(ready, request, cache_request, &shared).await?;
    }
    check_not_modified(response.status(), has_conditions)?;
    load.received(response, times).await
}

/// Sends a request by a service that is ready.
async fn send<S: Origin<(), B>, B: OriginBody>(
    ready: &mut S,
    request: Request<()>,
    cache_request: &CacheRequest,
    shared: &LayerState,
) -> Result<(Response<B>, Times), BoxError> {
    let request_time = SystemTime::now();
    let response = ready.call(request).await.map_err(Into::into)?;
    cache_request.note_answer(response.status(), response.headers(), shared.unstored());
    Ok((response, Times { request_time, response_time: SystemTime::now() }))
}
