//! `GrpcFetch`: the service behind the cache, as its loader.

use std::sync::Arc;
use std::task::{Context, Poll};

use bellwether::BoxError;
use bellwether::codec::Cacheability;
use bellwether_body::{BodyBudget, BufferedResponse, CacheBody, CollectedBody, UnfinishedReason};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, response};
use http_body::Body as HttpBody;
use http_body_util::Full;
use tonic::Status;
use tonic::body::Body;
use tower::Service;

use super::answer::GrpcAnswer;
use super::error_status::{status_of, status_without_text};
use super::message::{is_whole, read};
use super::method::{CachedMethod, classify, status};

/// A unary request that was read.
pub(crate) struct UnaryRequest {
    pub(super) method: Arc<CachedMethod>,
    pub(super) parts: Parts,
    /// Its message, with its prefix.
    pub(super) message: Bytes,
}

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
        let UnaryRequest { method, parts, message } = load;
        let body = Body::new(CacheBody::<Full<Bytes>>::stored(message, None));
        let answered = self.inner.call(Request::from_parts(parts, body));
        let most = self.most;
        let budget = self.collecting.clone();
        Box::pin(async move {
            let response = answered.await.map_err(|error| status_of(error.into()))?;
            let read = answer(response, &method, (most, &budget)).await;
            read.map_err(|error| status_without_text(error.into()))
        })
    }
}

/// Reads a response, and classifies it if it is a single message.
async fn answer<B>(
    response: Response<B>,
    method: &CachedMethod,
    (most, budget): (usize, &BodyBudget),
) -> Result<GrpcAnswer<B>, B::Error>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
{
    let (head, body) = response.into_parts();
    if !is_grpc(&head) {
        let response = Response::from_parts(head, CacheBody::passing(body));
        return Ok(GrpcAnswer::passing(Some(response), Cacheability::PrivateKey));
    }
    Ok(match read(body, most, Some(budget.share())).await? {
        CollectedBody::Whole { data, trailers } => whole(head, data, trailers, method),
        CollectedBody::Unfinished { begun, rest, why } => {
            let response = Response::from_parts(head, CacheBody::resumed(begun, rest));
            let cacheability = match why {
                // It says nothing about the next ones.
                UnfinishedReason::OverBudget => Cacheability::PrivateOnce,
                UnfinishedReason::TooLarge | UnfinishedReason::TooSlow => Cacheability::PrivateKey,
            };
            GrpcAnswer::passing(Some(response), cacheability)
        }
    })
}

fn whole<B>(
    head: response::Parts,
    data: Bytes,
    trailers: Option<HeaderMap>,
    method: &CachedMethod,
) -> GrpcAnswer<B> {
    let code = status(&head.headers, trailers.as_ref());
    let lacks_message = code == tonic::Code::Ok && data.is_empty();
    let cacheability = match is_whole(&data) && !lacks_message {
        true => classify(method, code, &head.headers),
        false => Cacheability::Failure,
    };
    let response::Parts { status, headers, .. } = head;
    GrpcAnswer::Complete(
        BufferedResponse { status, headers, body: data, trailers, note: () },
        cacheability,
    )
}

/// Whether a response is gRPC, and not that of an intermediary.
fn is_grpc(head: &response::Parts) -> bool {
    let content_type = head.headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    head.status == StatusCode::OK
        && content_type.is_some_and(|given| given.starts_with(b"application/grpc"))
        && !content_type.is_some_and(|given| given.starts_with(b"application/grpc-web"))
}
