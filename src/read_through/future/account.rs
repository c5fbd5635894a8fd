//! Accounting: each request counts once, when it is answered or when its caller leaves.

use tower::Service;

use super::machine::PendingRequest;
use super::state::AnswerWithStatus;
use crate::codec::Codec;
use crate::error::{CacheErrorKind, Error};
use crate::stats::RequestEvent;
use crate::status::CacheStatus;

impl<S, Req, C> PendingRequest<S, Req, C>
where
    S: Service<Req>,
    C: Codec<S::Response>,
{
    /// Counts the answer of this request.
    pub(super) fn count(&mut self, answer: &AnswerWithStatus<S::Response, S::Error>) {
        self.is_counted = true;
        let event = match answer {
            (_, CacheStatus::Hit { .. }) if !self.has_asked => RequestEvent::HitLocal,
            (Err(error), CacheStatus::Failed) => failure(error),
            (_, status) => RequestEvent::of(status),
        };
        if let (_, CacheStatus::Collapsed { place, waited }) = answer {
            self.core.statistics.waited(*place, *waited);
        }
        self.end(event);
    }
}

impl<S, Req, C> PendingRequest<S, Req, C> {
    fn end(&self, event: RequestEvent) {
        self.span.end(event, self.begun);
        match &self.options.noted {
            Some(noted) => noted.note(event),
            None => self.core.statistics.request(event),
        }
    }
}

impl<S, Req, C> Drop for PendingRequest<S, Req, C> {
    fn drop(&mut self) {
        if !self.is_counted {
            self.end(RequestEvent::Left);
        }
    }
}

fn failure<E>(error: &Error<E>) -> RequestEvent {
    let Error::Cache(error) = error else { return RequestEvent::FailedLoader };
    match error.kind() {
        CacheErrorKind::Contended => RequestEvent::FailedContended,
        CacheErrorKind::DeadlineExceeded => RequestEvent::FailedDeadline,
        CacheErrorKind::Full => RequestEvent::FailedFull,
        CacheErrorKind::LoadFailed(_) => RequestEvent::FailedCooldown,
        CacheErrorKind::NotFound => RequestEvent::FailedNotFound,
        CacheErrorKind::WrongCount => RequestEvent::FailedLoader,
        CacheErrorKind::LoaderPanicked => RequestEvent::FailedPanicked,
        CacheErrorKind::LoadLost => RequestEvent::FailedLost,
        CacheErrorKind::LoadTimedOut => RequestEvent::FailedLoadTimedOut,
        CacheErrorKind::KeyTooLong
        | CacheErrorKind::NoRuntime
        | CacheErrorKind::NotClearable
        | CacheErrorKind::TooManyTags => RequestEvent::FailedMisuse,
        CacheErrorKind::Store(_) => RequestEvent::FailedStore,
        CacheErrorKind::WaitTimedOut => RequestEvent::FailedWaitTimedOut,
    }
}
