//! `GrpcFetch`: the service behind the cache, as its loader.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bellwether::codec::Cacheability;
use bellwether::service::KeyRequest;
use bellwether::{BoxError, Tag};
use bellwether_body::{
    BodyBudget, BodyObserver, BufferedResponse, CacheBody, CollectedBody, ObservedBody,
    UnfinishedReason,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, response};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt, Full};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tonic::Status;
use tonic::body::Body;
use tower::Service;

use super::answer::GrpcAnswer;
use super::error_status::{status_of, status_without_text};
use super::message::{is_whole, read};
use super::method::{CachedMethod, classify, status};

/// A unary request that was read, and its lookup.
pub(crate) struct UnaryRequest {
    pub(super) ask: KeyRequest,
    pub(super) method: Arc<CachedMethod>,
    pub(super) parts: Parts,
    /// Its message, with its prefix.
    pub(super) message: Bytes,
    pub(super) tags: Vec<Tag>,
    /// Gives the caller its answer before the end of that is known.
    pub(super) early: EarlyAnswer,
}

impl UnaryRequest {
    pub(super) fn ask(&self) -> KeyRequest {
        self.ask.clone()
    }

    pub(super) fn tags(&self) -> Vec<Tag> {
        self.tags.clone()
    }
}

/// The function that makes the lookup of a request.
pub(super) type LookupOf = fn(&UnaryRequest) -> KeyRequest;

/// The service behind the cache.
#[derive(Clone, Debug)]
pub(crate) struct GrpcFetch<S> {
    pub(super) inner: S,
    /// How many bytes a stored answer may have.
    pub(super) most: usize,
    /// How many bytes all answers take together while they are read.
    pub(super) collecting: BodyBudget,
}

impl<S, B> Service<UnaryRequest> for GrpcFetch<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = GrpcAnswer<B>;
    type Error = Status;
    type Future = BoxFuture<'static, Result<GrpcAnswer<B>, Status>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.inner.poll_ready(cx).map_err(|error| status_of(error.into()))
    }

    fn call(&mut self, load: UnaryRequest) -> Self::Future {
        let UnaryRequest { method, parts, message, early, .. } = load;
        let body = Body::new(CacheBody::<Full<Bytes>>::stored(message, None));
        let answered = self.inner.call(Request::from_parts(parts, body));
        let most = self.most;
        let budget = self.collecting.clone();
        Box::pin(async move {
            let response = answered.await.map_err(|error| status_of(error.into()))?;
            let read = answer(response, &method, (most, &budget), early).await;
            read.map_err(|error| status_without_text(error.into()))
        })
    }
}

/// Reads a response, and classifies it if it is a single message.
async fn answer<B>(
    response: Response<B>,
    method: &CachedMethod,
    (most, budget): (usize, &BodyBudget),
    early: EarlyAnswer,
) -> Result<GrpcAnswer<B>, B::Error>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
{
    let (head, body) = response.into_parts();
    if !is_grpc(&head) {
        let response = Response::from_parts(head, CacheBody::passing(body));
        return Ok(GrpcAnswer::passing(Some(response), Cacheability::PrivateKey));
    }
    let (begun, rest, why) = match read(body, most, Some(budget.share())).await? {
        CollectedBody::Whole { data, trailers } => {
            let is_whole = is_whole(&data);
            return Ok(whole(head, data, trailers, is_whole, method));
        }
        CollectedBody::Unfinished { begun, rest, why } => (begun, rest, why),
    };
    if why != UnfinishedReason::TooSlow {
        let response = Response::from_parts(head, CacheBody::resumed(begun, rest));
        return Ok(GrpcAnswer::passing(
            Some(response),
            match why {
                // It says nothing about the next ones.
                UnfinishedReason::OverBudget => Cacheability::PrivateOnce,
                _ => Cacheability::PrivateKey,
            },
        ));
    }
    let (sender, end) = oneshot::channel();
    // The caller may be gone.
    let on_end = move |observed| _ = sender.send(observed);
    let observer = BodyObserver::new(begun.len(), Instant::now() + PAUSE, on_end);
    let body = CacheBody::resumed(begun.clone(), rest).observed_by(observer);
    Ok(match end_of(Response::from_parts(head.clone(), body), early, end).await {
        Some(ObservedBody::Complete { trailers, .. }) => whole(head, begun, trailers, true, method),
        Some(ObservedBody::Unfinished) => GrpcAnswer::passing(None, Cacheability::PrivateKey),
        None => GrpcAnswer::passing(None, Cacheability::PrivateOnce),
    })
}

fn whole<B>(
    head: response::Parts,
    data: Bytes,
    trailers: Option<HeaderMap>,
    is_whole: bool,
    method: &CachedMethod,
) -> GrpcAnswer<B> {
    let code = status(&head.headers, trailers.as_ref());
    let lacks_message = code == tonic::Code::Ok && data.is_empty();
    let cacheability = match is_whole && !lacks_message {
        true => classify(method, code, &head.headers),
        false => Cacheability::Failure,
    };
    let response::Parts { status, headers, .. } = head;
    GrpcAnswer::Complete(
        BufferedResponse { status, headers, body: data, trailers, note: () },
        cacheability,
    )
}

/// Gives a response to its caller, and waits until its end is known. A response that does not end
/// within [`PAUSE`] counts as a stream. `None` if it fails, or its caller drops it.
async fn end_of<B>(
    response: Response<CacheBody<B>>,
    early: EarlyAnswer,
    end: oneshot::Receiver<ObservedBody>,
) -> Option<ObservedBody>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
{
    let left_over = early.give(response);
    let ended = timeout(PAUSE, async {
        if let Some(response) = left_over {
            // The caller is gone, so the body is read here for the waiters.
            let mut body = response.into_body();
            while body.frame().await.is_some_and(|frame| frame.is_ok()) {}
        }
        end.await.ok()
    });
    ended.await.unwrap_or(Some(ObservedBody::Unfinished))
}

/// How long the trailers may take after the message. A server sends them with the message or right
/// after it, and the waiters of a stream should not wait long for a private answer.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether a response is gRPC, and not that of an intermediary.
fn is_grpc(head: &response::Parts) -> bool {
    let content_type = head.headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    head.status == StatusCode::OK
        && content_type.is_some_and(|given| given.starts_with(b"application/grpc"))
        && !content_type.is_some_and(|given| given.starts_with(b"application/grpc-web"))
}

/// The channel to the caller of a load, for an answer that is not read to its end. The type of the
/// body is erased, since the types that the request passes through do not name it.
pub(super) struct EarlyAnswer(Box<dyn Any + Send>);

type Sender<B> = oneshot::Sender<Response<CacheBody<B>>>;

impl EarlyAnswer {
    pub(super) fn channel<B: Send + 'static>() -> (Self, oneshot::Receiver<Response<CacheBody<B>>>)
    {
        let (sender, receiver) = oneshot::channel();
        (Self(Box::new(sender)), receiver)
    }

    /// Gives an answer to the caller. Returns it if the caller no longer waits.
    pub(super) fn give<B: Send + 'static>(
        self,
        response: Response<CacheBody<B>>,
    ) -> Option<Response<CacheBody<B>>> {
        match self.0.downcast::<Sender<B>>() {
            Ok(sender) => sender.send(response).err(),
            Err(_) => Some(response),
        }
    }
}
