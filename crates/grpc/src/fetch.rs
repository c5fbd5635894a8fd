//! `GrpcFetch`: the service behind the cache, as its loader.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bellwether::BoxError;
use bellwether::{Cacheability, Lookup};
use bellwether_body::{BodyEnd, CacheBody, KeptResponse};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, response};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use http_body_util::Full;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tower::Service;

use super::answer::GrpcAnswer;
use super::early::Early;
use super::message::{Read, Until, read};
use super::method::CachedMethod;
use super::trouble::status_of;
use super::verdict::{status, verdict};

/// A unary request that was read, and what it asks of the cache.
pub(crate) struct UnaryRequest {
    pub(super) ask: Lookup,
    pub(super) method: Arc<CachedMethod>,
    pub(super) parts: Parts,
    /// Its message, with its prefix.
    pub(super) message: Bytes,
    pub(super) trailers: Option<HeaderMap>,
    /// The caller, which may be given the answer before its end.
    pub(super) early: Early,
}

impl UnaryRequest {
    pub(super) fn ask(&self) -> Lookup {
        self.ask.clone()
    }
}

/// Which lookup a request needs.
pub(super) type LookupOf = fn(&UnaryRequest) -> Lookup;

/// The service behind the cache.
#[derive(Clone, Debug)]
pub(crate) struct GrpcFetch<S> {
    pub(super) inner: S,
    /// How large an answer is read, to be kept.
    pub(super) most: usize,
}

impl<S, B> Service<UnaryRequest> for GrpcFetch<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = GrpcAnswer<B>;
    type Error = Status;
    type Future = BoxFuture<'static, Result<GrpcAnswer<B>, Status>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.inner.poll_ready(cx).map_err(|error| status_of(error.into()))
    }

    fn call(&mut self, load: UnaryRequest) -> Self::Future {
        let UnaryRequest { method, parts, message, trailers, early, .. } = load;
        let body = Body::new(CacheBody::<Full<Bytes>>::kept(message, trailers));
        let answered = self.inner.call(Request::from_parts(parts, body));
        let most = self.most;
        Box::pin(async move {
            let response = answered.await.map_err(|error| status_of(error.into()))?;
            let read = answer(response, &method, most, early).await;
            read.map_err(|error| status_of(error.into()))
        })
    }
}

/// Reads a response if it can be kept.
async fn answer<B>(
    response: Response<B>,
    method: &CachedMethod,
    most: usize,
    early: Early,
) -> Result<GrpcAnswer<B>, B::Error>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
{
    let (head, body) = response.into_parts();
    if !is_grpc(&head) {
        return Ok(GrpcAnswer::passing(Response::from_parts(head, CacheBody::passing(body))));
    }
    let read = read(body, most, Until::Pause).await?;
    Ok(match read {
        Read::Ended { data, trailers, is_whole } => whole(head, data, trailers, is_whole, method),
        Read::GoesOn { begun, rest } => {
            GrpcAnswer::passing(Response::from_parts(head, CacheBody::rejoined(begun, rest)))
        }
        Read::Pauses { begun, rest } => {
            let (watch, end) = oneshot::channel();
            let body = CacheBody::watched(begun.clone(), rest, watch);
            match end_of(Response::from_parts(head.clone(), body), early, end).await {
                Some(BodyEnd::Ended(trailers)) => whole(head, begun, trailers, true, method),
                Some(BodyEnd::GoesOn) => GrpcAnswer::Taken(Cacheability::PrivateKey),
                None => GrpcAnswer::Taken(Cacheability::PrivateOnce),
            }
        }
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
    let verdict = match is_whole && !lacks_message {
        true => verdict(method, code, &head.headers),
        false => Cacheability::Failure,
    };
    let response::Parts { status, headers, .. } = head;
    GrpcAnswer::Whole(KeptResponse { status, headers, body: data, trailers, note: () }, verdict)
}

/// Gives a response to its caller, and tells how it ends. What does not end soon goes on. Nothing,
/// if it breaks off or its caller leaves.
async fn end_of<B>(
    response: Response<CacheBody<B>>,
    early: Early,
    end: oneshot::Receiver<BodyEnd>,
) -> Option<BodyEnd>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
{
    let left_over = early.give(response);
    let ended = timeout(PAUSE, async {
        if let Some(response) = left_over {
            // There is no caller that would read it.
            let mut body = response.into_body();
            while body.frame().await.is_some_and(|frame| frame.is_ok()) {}
        }
        end.await.ok()
    });
    ended.await.unwrap_or(Some(BodyEnd::GoesOn))
}

/// How long the end of an answer may take once its message is there. A server sends it along with
/// the message or right behind it, and callers of a stream wait for nothing else.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether it speaks gRPC, or was answered by something in between.
fn is_grpc(head: &response::Parts) -> bool {
    let content_type = head.headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    head.status == StatusCode::OK
        && content_type.is_some_and(|given| given.starts_with(b"application/grpc"))
        && !content_type.is_some_and(|given| given.starts_with(b"application/grpc-web"))
}
