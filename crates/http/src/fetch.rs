//! `OriginFetch`: the loader of the core. It asks the origin.

use std::fmt;
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
use super::asked::FetchRequest;
use super::earlier::StoredResponse;
use super::kept::CacheAnswer;
use super::origin::{self, Origin};
use super::rules::{self, Times};
use super::shared::LayerState;

/// Asks the origin for what is to be kept.
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
        // The one that is ready goes along.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(fetch(inner, self.shared.clone(), fetch_request))
    }
}

impl<S> fmt::Debug for OriginFetch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OriginFetch").finish_non_exhaustive()
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
    let earlier =
        StoredResponse::of::<B>(&shared, &fetch_request.key, &fetch_request.asked.demand).await;
    let (request, validates) = earlier.request_for(&fetch_request);
    let mut has_conditions = rules::asks_if_modified(request.headers());
    let again = inner.clone();
    let mut asked = SystemTime::now();
    let answered = inner.call(request);
    let mut response = match fetch_request.is_alone {
        true => answered.await.map_err(Into::into)?,
        false => in_time(&shared, &fetch_request.key, answered).await?.map_err(Into::into)?,
    };
    let mut answered = SystemTime::now();
    if response.status() == StatusCode::NOT_MODIFIED && validates {
        match earlier.validated_by(response.headers()) {
            Some((whole, headers)) => {
                let load = AnsweredFetch {
                    shared: &shared,
                    fetch_request: &fetch_request,
                    earlier: &earlier,
                };
                return load.validated(&whole, headers, Times { asked, answered }).await;
            }
            // It speaks of something else than what is kept.
            None => {
                let request = fetch_request.request(fetch_request.without_conditions());
                has_conditions = false;
                asked = SystemTime::now();
                response = again.oneshot(request).await.map_err(Into::into)?;
                answered = SystemTime::now();
            }
        }
    }
    origin::check_not_modified(response.status(), has_conditions)?;
    let load = AnsweredFetch { shared: &shared, fetch_request: &fetch_request, earlier: &earlier };
    load.received(response, Times { asked, answered }).await
}

/// The head of an answer, within the limit on a load.
async fn in_time<F: Future>(
    shared: &LayerState,
    key: &Key,
    answer: F,
) -> Result<F::Output, BoxError> {
    let limit = shared.client.load_timeout();
    timeout(limit, answer).await.map_err(|_| LoadTimedOut::new(key, limit).into())
}
