//! Accounting: each request counts once, when it is answered or when its caller leaves.

use tower::Service;

use super::pending_request::PendingRequest;
use super::state::AnswerWithStatus;
use crate::codec::Codec;
use crate::error::{CacheErrorKind, Error};
use crate::stats::RequestEvent;
use crate::status::{BypassReason, CacheStatus, LoadLocation, StaleReason};

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
            (_, status) => event(status),
        };
        self.core.statistics.request(event);
    }
}

impl<S, Req, C> Drop for PendingRequest<S, Req, C> {
    fn drop(&mut self) {
        if !self.is_counted {
            self.core.statistics.request(RequestEvent::Left);
        }
    }
}

fn event(status: &CacheStatus) -> RequestEvent {
    match status {
        CacheStatus::Hit { .. } => RequestEvent::HitStore,
        CacheStatus::Stale { why, .. } => match why {
            StaleReason::Revalidating => RequestEvent::StaleRevalidating,
            StaleReason::LoadFailed => RequestEvent::StaleLoadFailed,
            StaleReason::LoadSlow => RequestEvent::StaleLoadSlow,
            StaleReason::WaitRanOut => RequestEvent::StaleWaitRanOut,
            StaleReason::NoRoom => RequestEvent::StaleNoRoom,
        },
        CacheStatus::Led { stored: true } => RequestEvent::LedStored,
        CacheStatus::Led { stored: false } => RequestEvent::LedUnstored,
        CacheStatus::Collapsed { place: LoadLocation::Local, .. } => RequestEvent::CollapsedLocal,
        CacheStatus::Collapsed { place: LoadLocation::Remote, .. } => RequestEvent::CollapsedRemote,
        CacheStatus::Bypass(why) => match why {
            BypassReason::NoKey => RequestEvent::BypassedNoKey,
            BypassReason::NotKept => RequestEvent::BypassedNotKept,
            BypassReason::StoreFailed => RequestEvent::BypassedStoreFailed,
            BypassReason::WaitRanOut => RequestEvent::BypassedWaitRanOut,
        },
        CacheStatus::Failed => RequestEvent::FailedLoader,
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
