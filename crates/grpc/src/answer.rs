//! Answers of a service: whole ones, which are kept, and those that go through.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use bellwether::BoxError;
use bellwether::{CacheStatus, Cacheability, Codec, EncodeBuffer};
use bellwether_body::{CacheBody, KeptResponse};
use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use tonic::Status;

/// An answer of a service.
pub(crate) enum GrpcAnswer<B> {
    /// All of it, and what is to become of it.
    Whole(KeptResponse<()>, Cacheability),
    /// One that only its own caller can have, until it takes it.
    TakeOnce(TakeOnce<B>),
    /// One that its caller has already, and what that says of the next ones.
    Taken(Cacheability),
}

/// A response that goes through.
///
/// The lock is held to take it and never across an `.await`; it is there because what a flight
/// lands may be seen by many, and a body need not stand that.
pub(crate) struct TakeOnce<B>(Mutex<Option<Response<CacheBody<B>>>>);

impl<B> GrpcAnswer<B> {
    pub(super) fn passing(response: Response<CacheBody<B>>) -> Self {
        Self::TakeOnce(TakeOnce(Mutex::new(Some(response))))
    }

    pub(super) fn into_response(self) -> Response<CacheBody<B>> {
        match self {
            Self::Whole(kept, _) => {
                let mut response = Response::new(CacheBody::kept(kept.body, kept.trailers));
                *response.status_mut() = kept.status;
                *response.headers_mut() = kept.headers;
                note_status(&mut response);
                response
            }
            Self::TakeOnce(passing) => passing.take().unwrap_or_else(taken),
            Self::Taken(_) => taken(),
        }
    }

    /// Another one of the same.
    fn again(&self) -> Self {
        match self {
            Self::Whole(kept, verdict) => Self::Whole(kept.clone(), *verdict),
            Self::TakeOnce(passing) => Self::TakeOnce(TakeOnce(Mutex::new(passing.take()))),
            Self::Taken(verdict) => Self::Taken(*verdict),
        }
    }
}

fn taken<B>() -> Response<CacheBody<B>> {
    Status::internal("another caller has taken the answer").into_http()
}

/// Adds the status of an answer that is a head alone to its extensions, as tonic does for what is
/// above the service.
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

impl<B> TakeOnce<B> {
    fn take(&self) -> Option<Response<CacheBody<B>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Shows no content.
impl<B> fmt::Debug for GrpcAnswer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(kept, verdict) => {
                write!(f, "GrpcAnswer(whole, {} bytes, {verdict:?})", kept.body.len())
            }
            Self::TakeOnce(_) => f.write_str("GrpcAnswer(passing)"),
            Self::Taken(verdict) => write!(f, "GrpcAnswer(taken, {verdict:?})"),
        }
    }
}

/// How answers are kept.
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
        kept.again()
    }

    fn restore_owned(&self, kept: GrpcAnswer<B>, _: &CacheStatus) -> GrpcAnswer<B> {
        kept
    }

    fn classify(&self, kept: &GrpcAnswer<B>) -> Cacheability {
        match kept {
            GrpcAnswer::Whole(_, verdict) | GrpcAnswer::Taken(verdict) => *verdict,
            GrpcAnswer::TakeOnce(_) => Cacheability::PrivateKey,
        }
    }

    fn encode(&self, kept: &GrpcAnswer<B>, room: &mut EncodeBuffer) -> Result<(), BoxError> {
        match kept {
            GrpcAnswer::Whole(kept, _) => kept.encode(room),
            GrpcAnswer::TakeOnce(_) | GrpcAnswer::Taken(_) => {
                Err("an answer that goes through is not kept".into())
            }
        }
    }

    fn settle(&self, kept: GrpcAnswer<B>, encoded: &Bytes) -> GrpcAnswer<B> {
        match (&kept, KeptResponse::borrowing(encoded)) {
            (GrpcAnswer::Whole(_, verdict), Ok(response)) => GrpcAnswer::Whole(response, *verdict),
            _ => kept,
        }
    }

    fn weight(&self, kept: &GrpcAnswer<B>, encoded: &Bytes) -> usize {
        match kept {
            GrpcAnswer::Whole(kept, _) => size_of::<GrpcAnswer<B>>() + kept.weight_of_fields(),
            GrpcAnswer::TakeOnce(_) | GrpcAnswer::Taken(_) => encoded.len(),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<GrpcAnswer<B>, BoxError> {
        Ok(GrpcAnswer::Whole(KeptResponse::decode(bytes)?, Cacheability::Keep))
    }
}
