//! `ResponseFuture`: the future of one request, with its states, its timer and its span. `machine` says
//! what happens in them. `AnswerFuture` is one without the types of its loader and its codec.

mod machine;

use std::any::TypeId;
use std::fmt;
use std::future::{self, Future, Ready, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Either;
use pin_project::pin_project;
use tokio::runtime::Handle;
use tokio::task::try_id;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tower::Service;
use tracing::field;

use self::machine::PendingRequest;
use super::core::{Core, Outcome, Peeked};
use super::load::{AloneLoad, Job, Loader, load_alone};
use super::lookup::RequestOptions;
use crate::box_future::BoxFuture;
use crate::codec::Codec;
use crate::error::{BoxError, CacheError, CacheErrorKind, Error};
use crate::flight::{LoneLookup, PhaseListener, Waiter};
use crate::key::Key;
use crate::shared_error::SharedError;
use crate::stats::{RequestEvent, RequestStats, Statistics};
use crate::status::{BypassReason, CacheStatus};
use crate::store::{Entry, StoreFuture};
use crate::trace::CallerSpan;

/// The future of one request. Made by [`ReadThrough`](crate::service::ReadThrough).
///
/// # Cancel safety
/// Dropping it takes nothing from other callers. A load that it has started goes on for its
/// waiters. If there are none, [`WhenAbandoned`](crate::WhenAbandoned) applies.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<S: Service<Req>, Req, C> {
    /// `None`: it was answered at once.
    request: Option<Pin<Box<TimedRequest<S, Req, C>>>>,
    state: State<S, Req>,
}

/// A request, and the sleep until the first of its moments. In one box, so that the future is small:
/// callers move it into their tasks.
#[pin_project]
struct TimedRequest<S, Req, C> {
    request: PendingRequest<S, Req, C>,
    /// Made when it first waits.
    #[pin]
    sleep: Option<Sleep>,
}

/// All that has to stay in place is in boxes.
impl<S: Service<Req>, Req, C> Unpin for ResponseFuture<S, Req, C> {}

impl<S, Req: Send + 'static, C: Codec<S::Response>> ResponseFuture<S, Req, C>
where
    S: Service<Req, Error: Into<BoxError> + Send + Sync + 'static, Future: Send>,
    S: Clone + Send + 'static,
{
    /// Waits for the answer and how it came about, with the same cancel safety.
    pub fn with_status(mut self) -> impl Future<Output = AnswerWithStatus<S::Response, S::Error>> {
        poll_fn(move |cx| self.poll_answer(cx))
    }

    /// Begins a request without a key: it bypasses the cache. Without a runtime there are no timers,
    /// and no deadline.
    pub(super) fn bypass(core: &Core<C>, inner: S, request: Req, options: RequestOptions) -> Self {
        let deadline = options.deadline.map(answer_by);
        let statistics = &core.statistics;
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            statistics.request(RequestEvent::FailedDeadline);
            return Self::settled(late());
        }
        statistics.request(RequestEvent::BypassedNoKey);
        let load = load_alone(inner, request, None, statistics);
        let answer = async move {
            let loaded = match deadline.filter(|_| has_runtime()) {
                Some(deadline) => timeout_at(deadline, load).await,
                None => Ok(load.await),
            };
            let answer = match loaded {
                Ok(Ok(answer)) => answer.map_err(|error| Error::Load(SharedError::new(error))),
                Ok(Err(panicked)) => Err(panicked.into()),
                Err(_) => return late(),
            };
            (answer, CacheStatus::Bypass(BypassReason::NoKey))
        };
        Self { request: None, state: State::Keyless(answer.boxed()) }
    }

    /// Begins a request under a key, among the loads of loaders whose own errors are of type `E`:
    /// answers it from this process, or prepares to ask the store.
    #[inline]
    pub(super) fn begin<E: 'static>(
        core: &Arc<Core<C>>,
        key: Key,
        service: &S,
        request: Req,
        options: RequestOptions,
    ) -> Self {
        if key.byte_len() > Key::MAX_BYTES {
            return Self::misused(core, &options, CacheError::key_too_long(&key));
        }
        let peeked = match options.is_forced {
            true => Peeked::Miss,
            false => core.peek::<S::Response>(&key, &options.tags),
        };
        if let Peeked::Hit(answer, fresh_for) = peeked {
            core.count(&options, RequestEvent::HitLocal);
            return Self { request: None, state: State::Hit(Some(answer), fresh_for) };
        }
        Self::pending::<E>(core, key, service, request, options, peeked)
    }

    /// A request that is not answered at once. A function of its own, so that a hit has less to do.
    #[inline(never)]
    fn pending<E: 'static>(
        core: &Arc<Core<C>>,
        key: Key,
        service: &S,
        request: Req,
        options: RequestOptions,
        peeked: Peeked<S::Response>,
    ) -> Self {
        let tags = match core.tags.of(&request, &options.tags) {
            Ok(tags) => tags,
            Err(many) => {
                return Self::misused(core, &options, CacheError::too_many_tags(&key, &many));
            }
        };
        // Moved to when the wait has to end.
        let options = RequestOptions { deadline: options.deadline.map(answer_by), ..options };
        let job = Job { service: service.clone(), request };
        let types = TypeId::of::<(C::Kept, E)>();
        let request = PendingRequest::new(Arc::clone(core), key, types, tags, job, options);
        let request = Box::pin(TimedRequest { request, sleep: None });
        Self { request: Some(request), state: State::Begun(peeked) }
    }

    fn misused(core: &Core<C>, options: &RequestOptions, error: CacheError) -> Self {
        core.count(options, RequestEvent::FailedMisuse);
        Self::settled((Err(error.into()), CacheStatus::Failed))
    }

    fn settled(answer: AnswerWithStatus<S::Response, S::Error>) -> Self {
        Self { request: None, state: State::Answered(Some(answer)) }
    }

    /// Sets what is called with each phase of its flight.
    pub(super) fn with_listener(mut self, listener: impl FnOnce() -> PhaseListener) -> Self {
        if let Some(request) = &mut self.request {
            request.as_mut().project().request.listener = Some(listener());
        }
        self
    }

    /// The answer, if there is one without a wait. It is taken out: the future has none any more.
    pub(super) fn at_once(&mut self) -> Option<AnswerWithStatus<S::Response, S::Error>> {
        match &mut self.state {
            State::Answered(answer) => answer.take(),
            State::Hit(answer, fresh_for) => {
                let status = CacheStatus::Hit { fresh_for: *fresh_for };
                answer.take().map(|answer| (Ok(answer), status))
            }
            _ => None,
        }
    }

    /// Until there is an answer, each step of the loop is a transition of the request.
    #[inline]
    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<AnswerWithStatus<S::Response, S::Error>> {
        loop {
            if let Some(answer) = self.at_once() {
                if let Some(timed) = &mut self.request {
                    timed.as_mut().project().request.count(&answer);
                }
                return Poll::Ready(answer);
            }
            let timed = match (&mut self.state, &mut self.request) {
                (State::Keyless(answer), _) => return answer.as_mut().poll(cx),
                (_, Some(timed)) => timed.as_mut().project(),
                (_, None) => panic!("polled after it was ready"),
            };
            let span = timed.request.span.own.clone();
            let _entered = span.enter();
            self.state = ready!(timed.request.advance(&mut self.state, timed.sleep, cx));
        }
    }
}

impl<S, Req: Send + 'static, C: Codec<S::Response>> Future for ResponseFuture<S, Req, C>
where
    S: Service<Req, Error: Into<BoxError> + Send + Sync + 'static, Future: Send>,
    S: Clone + Send + 'static,
{
    type Output = Result<S::Response, Error<S::Error>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Most requests are answered by the time of their first poll, and this moves least.
        if let Self { state: State::Hit(hit, _), request: None } = &mut *self
            && let Some(answer) = hit.take()
        {
            return Poll::Ready(Ok(answer));
        }
        self.poll_answer(cx).map(|(answer, _)| answer)
    }
}

/// The answer to a request without a key at its deadline.
fn late<R, E>() -> AnswerWithStatus<R, E> {
    let message = "the loader has not answered a request without a key by its deadline";
    let error = CacheError::new(CacheErrorKind::DeadlineExceeded, message.to_owned());
    (Err(error.into()), CacheStatus::Failed)
}

impl<S: Service<Req>, Req, C> fmt::Debug for ResponseFuture<S, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// The answer to one call of a [`Cache`](crate::Cache) or of a function with the attribute
/// `#[read_through]`.
///
/// # Cancel safety
/// Dropping it takes nothing from other callers. A load that it has started goes on for its
/// waiters. If there are none, [`WhenAbandoned`](crate::WhenAbandoned) applies.
#[must_use = "futures do nothing unless polled"]
pub struct AnswerFuture<R, E>(AtOnceOrBoxed<AnswerWithStatus<R, E>>);

/// An answer that was there at once takes no box.
type AtOnceOrBoxed<A> = Either<Ready<A>, BoxFuture<'static, A>>;

impl<R, E> AnswerFuture<R, E> {
    /// Waits for the answer and how it came about, with the same cancel safety.
    pub fn with_status(self) -> impl Future<Output = AnswerWithStatus<R, E>> + use<R, E> {
        self.0
    }
}

impl<S: Loader<Req, Response: Send>, Req: Send + 'static, C: Codec<S::Response>>
    From<ResponseFuture<S, Req, C>> for AnswerFuture<S::Response, S::Error>
{
    #[inline]
    fn from(mut answer: ResponseFuture<S, Req, C>) -> Self {
        match answer.at_once() {
            Some(answer) => Self(Either::Left(future::ready(answer))),
            None => Self(Either::Right(answer.with_status().boxed())),
        }
    }
}

impl<R, E> Future for AnswerFuture<R, E> {
    type Output = Result<R, Error<E>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_unpin(cx).map(|(answer, _)| answer)
    }
}

impl<R, E> fmt::Debug for AnswerFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerFuture").finish_non_exhaustive()
    }
}

/// The state of a request.
enum State<S: Service<Req>, Req> {
    /// Not polled yet: what this process knows without a request, which is no hit.
    Begun(Peeked<S::Response>),
    /// Polls the store's answer, as the only caller of this key.
    LookingUp { answer: StoreFuture<Option<Entry>>, _alone: LoneLookup<Outcome> },
    /// Polls for the outcome of a flight. If set, the wait ends as soon as it would be for the load of
    /// another caller.
    Waiting(Waiter<Outcome>, bool),
    /// Polls the loader itself, because its key has private answers.
    Loading(AloneLoad<S::Response, S::Error>),
    /// The same for a request without a key, which has nothing but that.
    Keyless(BoxFuture<'static, AnswerWithStatus<S::Response, S::Error>>),
    /// Answered from this process: the answer, and how much longer it is fresh. The next poll takes
    /// it. Most answers are of this kind, so it is kept small.
    Hit(Option<S::Response>, Option<Duration>),
    /// Answered. The next poll takes the answer.
    Answered(Option<AnswerWithStatus<S::Response, S::Error>>),
}

/// An answer, and how it came about.
pub(super) type AnswerWithStatus<R, E> = (Result<R, Error<E>>, CacheStatus);

/// The moments for which a request waits beside its answer.
struct Timer {
    /// When the load counts as slow.
    slow: Option<Instant>,
    /// When its wait runs out.
    wait: Option<Instant>,
    /// When it is answered at the latest.
    deadline: Option<Instant>,
}

/// Which moment has come.
#[derive(Clone, Copy)]
enum Elapsed {
    Slow,
    Wait,
    Deadline,
}

impl Timer {
    fn new(deadline: Option<Instant>) -> Self {
        Self { slow: None, wait: None, deadline }
    }

    /// Sets when the load counts as slow, and when the wait runs out.
    fn wait_until(&mut self, wait: Option<Instant>, slow: Option<Instant>) {
        (self.wait, self.slow) = (wait, slow);
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Waits for the first moment that has not come yet. Without a runtime there are no timers, and
    /// it never comes.
    fn poll(&mut self, mut sleep: Pin<&mut Option<Sleep>>, cx: &mut Context<'_>) -> Poll<Elapsed> {
        let moments = [
            (self.wait, Elapsed::Wait),
            (self.slow, Elapsed::Slow),
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
            Elapsed::Deadline => {}
        }
        Poll::Ready(what)
    }
}

/// Whether there is a runtime, and with it timers and tasks. A task has one, and is asked first, because
/// all tasks share the count of handles.
fn has_runtime() -> bool {
    try_id().is_some() || Handle::try_current().is_ok()
}

/// When a wait has to end so that its caller has the answer by the deadline.
fn answer_by(deadline: Instant) -> Instant {
    let left = deadline.saturating_duration_since(Instant::now());
    deadline - (left / 10).clamp(TIMER, ANSWER).min(left / 2)
}

/// Timers have steps of 1 ms, so they may be as late, and a woken task takes time to run.
const TIMER: Duration = Duration::from_millis(2);

/// About how long a busy machine takes from a timer to the answer.
const ANSWER: Duration = Duration::from_millis(10);

/// The span in which a request waits: its own, or that of its caller if its own is off.
#[derive(Default)]
struct RequestSpan {
    /// What is linked to the load, and what the load is a child of.
    waits: CallerSpan,
    /// Its own span, to poll in it. Its caller's is entered by the caller.
    own: CallerSpan,
}

impl RequestSpan {
    /// Begins the span of a request, as a child of the current one.
    fn begin(statistics: &Statistics, key: &Key) -> Self {
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
        let own = CallerSpan::of(span);
        let waits = if own.is_none() { CallerSpan::current() } else { own.clone() };
        Self { waits, own }
    }

    /// Notes how the request that began then has ended.
    fn end(&self, event: RequestEvent, begun: Instant) {
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
fn finish_alone<S: Service<Req>, Req>(lookup: State<S, Req>) {
    if let (State::LookingUp { answer, .. }, Ok(runtime)) = (lookup, Handle::try_current()) {
        runtime.spawn(answer.map(drop));
    }
}

/// How a request counts that ends with this error.
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
