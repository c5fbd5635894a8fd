//! `OriginFetch`: the loader of the cache, which asks the origin.

use std::task::{Context, Poll};
use std::time::SystemTime;

use bellwether::BoxError;
use bellwether::Key;
use bellwether::adapter::LoadTimedOut;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tokio::time::timeout;
use tower::{Service, ServiceExt};

use super::answered_fetch::AnsweredFetch;
use super::cache_request::FetchRequest;
use super::codec::CacheAnswer;
use super::origin::{self, Origin};
use super::rules::{self, Times};
use super::shared::LayerState;
use super::stored_response::StoredResponse;

/// Asks the origin, and decides whether its response is stored.
#[derive(Clone)]
pub(super) struct OriginFetch<S> {
    pub(super) inner: S,
    pub(super) shared: LayerState,
}

impl<S, ReqB, B> Service<FetchRequest<ReqB>> for OriginFetch<S>
where
    S: Service<Request<ReqB>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    ReqB: Default + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = CacheAnswer<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<CacheAnswer<B>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, fetch_request: FetchRequest<ReqB>) -> Self::Future {
        // Readiness belongs to this instance, so the future takes it and leaves the clone.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(fetch(inner, self.shared.clone(), fetch_request))
    }
}

async fn fetch<S, ReqB, B>(
    mut inner: S,
    shared: LayerState,
    fetch_request: FetchRequest<ReqB>,
) -> Result<CacheAnswer<B>, BoxError>
where
    S: Origin<ReqB, B>,
    ReqB: Default,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let stored_response =
        StoredResponse::of::<B>(&shared, &fetch_request.key, &fetch_request.cache_request.demand)
            .await;
    let load = AnsweredFetch {
        shared: &shared,
        fetch_request: &fetch_request,
        stored_response: &stored_response,
    };
    let (request, validates) = stored_response.request_for(&fetch_request);
    let mut has_conditions = rules::asks_if_modified(request.headers());
    let retry = inner.clone();
    let mut request_time = SystemTime::now();
    let answered = inner.call(request);
    let answer = match fetch_request.is_alone {
        true => answered.await,
        false => within_load_timeout(&shared, &fetch_request.key, answered).await?,
    };
    let mut response = answer.map_err(Into::into)?;
    let mut response_time = SystemTime::now();
    fetch_request.cache_request.note_answer(response.status(), response.headers());
    if response.status() == StatusCode::NOT_MODIFIED && validates {
        match stored_response.validated_by(response.headers()) {
            Some((cached, headers)) => {
                return load
                    .validated(&cached, headers, Times { request_time, response_time })
                    .await;
            }
            // The 304 is about another response than the stored one.
            None => {
                let request = fetch_request.request(fetch_request.without_conditions());
                has_conditions = false;
                request_time = SystemTime::now();
                response = retry.oneshot(request).await.map_err(Into::into)?;
                response_time = SystemTime::now();
                fetch_request.cache_request.note_answer(response.status(), response.headers());
            }
        }
    }
    origin::check_not_modified(response.status(), has_conditions)?;
    load.received(response, Times { request_time, response_time }).await
}

/// Waits for the head of a response, for the load timeout at most.
async fn within_load_timeout<F: Future>(
    shared: &LayerState,
    key: &Key,
    answer: F,
) -> Result<F::Output, BoxError> {
    let limit = shared.client.load_timeout();
    timeout(limit, answer).await.map_err(|_| LoadTimedOut::new(key, limit).into())
}
