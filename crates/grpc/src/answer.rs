//! Answers of a service: whole ones, which are kept, and those that go through.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use bellwether::BoxError;
use bellwether::{CacheStatus, Capture, Room, Verdict};
use bellwether_body::{CacheBody, KeptResponse};
use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use tonic::Status;

/// An answer of a service.
pub(crate) enum Answer<B> {
    /// All of it, and what is to become of it.
    Whole(KeptResponse<()>, Verdict),
    /// One that nobody else can have, until its caller takes it.
    Passing(Passing<B>),
    /// One that its caller has already, and what that says of the next ones.
    Taken(Verdict),
}

/// A response that goes through.
///
/// The lock is held to take it and never across an `.await`; it is there because what a flight
/// lands may be seen by many, and a body need not stand that.
pub(crate) struct Passing<B>(Mutex<Option<Response<CacheBody<B>>>>);

impl<B> Answer<B> {
    pub(super) fn passing(response: Response<CacheBody<B>>) -> Self {
        Self::Passing(Passing(Mutex::new(Some(response))))
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
            Self::Passing(passing) => passing.take().unwrap_or_else(taken),
            Self::Taken(_) => taken(),
        }
    }

    /// Another one of the same.
    fn again(&self) -> Self {
        match self {
            Self::Whole(kept, verdict) => Self::Whole(kept.clone(), *verdict),
            Self::Passing(passing) => Self::Passing(Passing(Mutex::new(passing.take()))),
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

impl<B> Passing<B> {
    fn take(&self) -> Option<Response<CacheBody<B>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Shows no content.
impl<B> fmt::Debug for Answer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(kept, verdict) => {
                write!(f, "Answer(whole, {} bytes, {verdict:?})", kept.body.len())
            }
            Self::Passing(_) => f.write_str("Answer(passing)"),
            Self::Taken(verdict) => write!(f, "Answer(taken, {verdict:?})"),
        }
    }
}

/// How answers are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answers;

impl<B> Capture<Answer<B>> for Answers
where
    B: Send + 'static,
{
    type Kept = Answer<B>;

    fn codec(&self) -> u8 {
        3
    }

    fn keep(&self, answer: Answer<B>) -> Answer<B> {
        answer
    }

    fn restore(&self, kept: &Answer<B>, _: &CacheStatus) -> Answer<B> {
        kept.again()
    }

    fn give_out(&self, kept: Answer<B>, _: &CacheStatus) -> Answer<B> {
        kept
    }

    fn verdict(&self, kept: &Answer<B>) -> Verdict {
        match kept {
            Answer::Whole(_, verdict) | Answer::Taken(verdict) => *verdict,
            Answer::Passing(_) => Verdict::Private,
        }
    }

    fn encode(&self, kept: &Answer<B>, room: &mut Room) -> Result<(), BoxError> {
        match kept {
            Answer::Whole(kept, _) => kept.encode(room),
            Answer::Passing(_) | Answer::Taken(_) => {
                Err("an answer that goes through is not kept".into())
            }
        }
    }

    fn settle(&self, kept: Answer<B>, encoded: &Bytes) -> Answer<B> {
        match (&kept, KeptResponse::borrowing(encoded)) {
            (Answer::Whole(_, verdict), Ok(response)) => Answer::Whole(response, *verdict),
            _ => kept,
        }
    }

    fn weight(&self, kept: &Answer<B>, encoded: &Bytes) -> usize {
        match kept {
            Answer::Whole(kept, _) => size_of::<Answer<B>>() + kept.weight_of_fields(),
            Answer::Passing(_) | Answer::Taken(_) => encoded.len(),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Answer<B>, BoxError> {
        Ok(Answer::Whole(KeptResponse::decode(bytes)?, Verdict::Keep))
    }
}
