//! `GrpcAnswer` and `GrpcCodec`: what a load returns, and how answers are stored.

use std::sync::Mutex;

use bellwether::adapter::locked;
use bellwether::codec::{Cacheability, Codec, EncodeBuffer};
use bellwether::{BoxError, CacheStatus};
use bellwether_body::{BufferedResponse, CacheBody};
use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use tonic::Status;

/// What a load returns.
pub(crate) enum GrpcAnswer<B> {
    /// A complete answer, and whether it is stored.
    Complete(BufferedResponse<()>, Cacheability),
    /// An answer that passes through, and what that means for the next ones. The first caller takes
    /// it, or has it already.
    ///
    /// The mutex is there because the outcome of a flight is shared between threads, and a body need not
    /// be `Sync`. It is locked to take the response, never across an `.await`.
    TakeOnce(Mutex<Option<Response<CacheBody<B>>>>, Cacheability),
}

impl<B> GrpcAnswer<B> {
    /// One that passes through, or whose caller has it already.
    pub(super) fn passing(
        response: Option<Response<CacheBody<B>>>,
        cacheability: Cacheability,
    ) -> Self {
        Self::TakeOnce(Mutex::new(response), cacheability)
    }

    pub(super) fn into_response(self) -> Response<CacheBody<B>> {
        match self {
            Self::Complete(kept, _) => {
                let mut response = Response::new(CacheBody::stored(kept.body, kept.trailers));
                *response.status_mut() = kept.status;
                *response.headers_mut() = kept.headers;
                note_status(&mut response);
                response
            }
            Self::TakeOnce(passing, _) => take(&passing).unwrap_or_else(|| {
                Status::internal("another caller has taken the answer").into_http()
            }),
        }
    }

    /// The answer for one more caller.
    fn for_caller(&self) -> Self {
        match self {
            Self::Complete(kept, cacheability) => Self::Complete(kept.clone(), *cacheability),
            Self::TakeOnce(passing, cacheability) => Self::passing(take(passing), *cacheability),
        }
    }
}

fn take<T>(once: &Mutex<Option<T>>) -> Option<T> {
    locked(once).take()
}

/// Adds the status of a trailers-only response to its extensions, as tonic does for layers above a
/// service.
fn note_status<B>(response: &mut Response<CacheBody<B>>) {
    if !response.headers().contains_key(Status::GRPC_STATUS) {
        return;
    }
    let mut fields = response.headers().clone();
    fields.remove(CONTENT_TYPE);
    if let Some(status) = Status::from_header_map(&fields) {
        response.extensions_mut().insert(status);
    }
}

/// The codec of stored answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrpcCodec;

impl<B> Codec<GrpcAnswer<B>> for GrpcCodec
where
    B: Send + 'static,
{
    type Kept = GrpcAnswer<B>;

    fn id(&self) -> u8 {
        3
    }

    fn keep(&self, answer: GrpcAnswer<B>) -> GrpcAnswer<B> {
        answer
    }

    fn restore(&self, kept: &GrpcAnswer<B>, _: &CacheStatus) -> GrpcAnswer<B> {
        kept.for_caller()
    }

    fn restore_owned(&self, kept: GrpcAnswer<B>, _: &CacheStatus) -> GrpcAnswer<B> {
        kept
    }

    fn classify(&self, kept: &GrpcAnswer<B>) -> Cacheability {
        match kept {
            GrpcAnswer::Complete(_, cacheability) | GrpcAnswer::TakeOnce(_, cacheability) => {
                *cacheability
            }
        }
    }

    fn encode(&self, kept: &GrpcAnswer<B>, room: &mut EncodeBuffer) -> Result<(), BoxError> {
        match kept {
            GrpcAnswer::Complete(kept, _) => kept.encode(room),
            GrpcAnswer::TakeOnce(..) => Err("an answer that passes through is not stored".into()),
        }
    }

    fn complete(&self, kept: GrpcAnswer<B>, encoded: &Bytes) -> GrpcAnswer<B> {
        match (&kept, BufferedResponse::borrowing(encoded)) {
            (GrpcAnswer::Complete(_, cacheability), Ok(response)) => {
                GrpcAnswer::Complete(response, *cacheability)
            }
            _ => kept,
        }
    }

    fn weight(&self, kept: &GrpcAnswer<B>, encoded: &Bytes) -> usize {
        match kept {
            GrpcAnswer::Complete(kept, _) => size_of::<GrpcAnswer<B>>() + kept.weight_of_fields(),
            GrpcAnswer::TakeOnce(..) => encoded.len(),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<GrpcAnswer<B>, BoxError> {
        Ok(GrpcAnswer::Complete(BufferedResponse::decode(bytes)?, Cacheability::Keep))
    }
}
