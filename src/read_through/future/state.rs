//! What a request is in: its state, its timer and its span. `pending_request` says what happens in it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::task::try_id;
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::field;

use crate::error::{CacheErrorKind, Error};
use crate::flight::{LonePermit, Waiter};
use crate::key::Key;
use crate::read_through::core::Peeked;
use crate::read_through::load::{AloneLoad, Loader};
use crate::read_through::outcome::Outcome;
use crate::stats::{RequestEvent, RequestStats, Statistics};
use crate::status::CacheStatus;
use crate::store::{Entry, StoreFuture};
use crate::trace::CallerSpan;

/// The state of a request.
pub(super) enum State<S: Loader<Req>, Req> {
    /// Not polled yet: what this process knows without a request, which is no hit.
    Begun(Peeked<S::Response>),
    /// Polls the store's answer, as the only caller of this key.
    LookingUp { answer: StoreFuture<Option<Entry>>, _alone: LonePermit<Outcome> },
    /// Polls for the outcome of a flight. If set, the wait ends as soon as it would be for the load of
    /// another caller.
    Waiting(Waiter<Outcome>, bool),
    /// Polls the loader itself, because its key has private answers.
    Loading(AloneLoad<S::Response, S::Error>),
    /// Answered. The next poll takes the answer.
    Answered(Option<AnswerWithStatus<S::Response, S::Own>>),
}

/// An answer, and how it came about.
pub(in crate::read_through) type AnswerWithStatus<R, E> = (Result<R, Error<E>>, CacheStatus);

/// The moments for which a request waits beside its answer.
pub(super) struct Timer {
    /// When the load counts as slow.
    slow: Option<Instant>,
    /// When its wait runs out.
    wait: Option<Instant>,
    /// When it doubts that its flight is driven.
    doubt: Option<Instant>,
    /// When it is answered at the latest.
    deadline: Option<Instant>,
}

/// Which moment has come.
#[derive(Clone, Copy)]
pub(super) enum Elapsed {
    Slow,
    Wait,
    Doubt,
    Deadline,
}

impl Timer {
    pub(super) fn new(deadline: Option<Instant>) -> Self {
        Self { slow: None, wait: None, doubt: None, deadline }
    }

    /// Sets when the load counts as slow, and when the wait runs out.
    pub(super) fn wait_until(&mut self, wait: Option<Instant>, slow: Option<Instant>) {
        (self.wait, self.slow) = (wait, slow);
    }

    /// Sets when it doubts that its flight is driven.
    pub(super) fn doubt_at(&mut self, moment: Instant) {
        self.doubt = Some(moment);
    }

    pub(super) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Waits for the first moment that has not come yet. Without a runtime there are no timers, and
    /// it never comes.
    pub(super) fn poll(
        &mut self,
        mut sleep: Pin<&mut Option<Sleep>>,
        cx: &mut Context<'_>,
    ) -> Poll<Elapsed> {
        let moments = [
            (self.wait, Elapsed::Wait),
            (self.slow, Elapsed::Slow),
            (self.doubt, Elapsed::Doubt),
            (self.deadline, Elapsed::Deadline),
        ];
        let set = moments.into_iter().filter_map(|(at, what)| Some((at?, what)));
        let Some((at, what)) = set.min_by_key(|(at, _)| *at) else { return Poll::Pending };
        if sleep.is_none() && has_runtime() {
            sleep.set(Some(sleep_until(at)));
        }
        let Some(mut sleep) = sleep.as_pin_mut() else { return Poll::Pending };
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        ready!(sleep.poll(cx));
        match what {
            Elapsed::Slow => self.slow = None,
            Elapsed::Wait => self.wait_until(None, None),
            Elapsed::Doubt => self.doubt = None,
            Elapsed::Deadline => {}
        }
        Poll::Ready(what)
    }
}

/// Whether there is a runtime, and with it timers and tasks. A task has one, and is asked first, because
/// all tasks share the count of handles.
pub(super) fn has_runtime() -> bool {
    try_id().is_some() || Handle::try_current().is_ok()
}

/// When a wait has to end so that its caller has the answer by the deadline.
pub(super) fn answer_by(deadline: Instant) -> Instant {
    let left = deadline.saturating_duration_since(Instant::now());
    deadline - (left / 10).clamp(TIMER, ANSWER).min(left / 2)
}

/// Timers have steps of 1 ms, so they may be as late, and a woken task takes time to run.
const TIMER: Duration = Duration::from_millis(2);

/// About how long a busy machine takes from a timer to the answer.
const ANSWER: Duration = Duration::from_millis(10);

/// The spans of a request.
#[derive(Default)]
pub(super) struct RequestSpan {
    /// Its own span, to poll in it. Its caller's is entered by the caller.
    pub(super) own: CallerSpan,
    /// That of its caller, of which the load is a child.
    pub(super) around: CallerSpan,
}

impl RequestSpan {
    /// Begins the span of a request, as a child of the current one.
    pub(super) fn begin(statistics: &Statistics, key: &Key) -> Self {
        let span = tracing::debug_span!(
            target: "bellwether::load",
            "cache.get",
            cache = &**statistics.name(),
            key.kind = key.kind(),
            key.digest = field::Empty,
            key.plain = field::Empty,
            outcome = field::Empty,
            detail = field::Empty,
            waited_ms = field::Empty,
        );
        statistics.note_key(&span, key);
        Self { own: CallerSpan::of(span), around: CallerSpan::current() }
    }

    /// In which the request waits, to be linked to the load: its own, or that of its caller if its own is off.
    pub(super) fn waits(&self) -> &CallerSpan {
        if self.own.is_none() { &self.around } else { &self.own }
    }

    /// Notes how the request that began then has ended.
    pub(super) fn end(&self, event: RequestEvent, begun: Instant) {
        if !self.own.is_none() {
            let field = RequestStats::FIELDS[event as usize];
            let (outcome, detail) = field.split_once('_').unwrap_or((field, ""));
            let span = self.own.span();
            span.record("outcome", outcome).record("detail", detail);
            let waited = begun.elapsed().as_millis();
            span.record("waited_ms", u64::try_from(waited).unwrap_or(u64::MAX));
        }
    }
}

/// Finishes a lookup in a task, without its caller. The breaker of the store learns from it that the
/// store does not answer. Otherwise callers with short waits would keep asking in vain.
pub(super) fn finish_alone<S: Loader<Req>, Req>(lookup: State<S, Req>) {
    if let (State::LookingUp { answer, .. }, Ok(runtime)) = (lookup, Handle::try_current()) {
        runtime.spawn(answer.map(drop));
    }
}

/// How a request counts that ends with this error.
pub(super) fn failure<E>(error: &Error<E>) -> RequestEvent {
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
        | CacheErrorKind::Recursive
        | CacheErrorKind::TooManyTags => RequestEvent::FailedMisuse,
        CacheErrorKind::Store(_) => RequestEvent::FailedStore,
        CacheErrorKind::WaitTimedOut => RequestEvent::FailedWaitTimedOut,
    }
}
