//! One caller's attempt to get a key: wait in the local queue, then ask the lock until it is
//! granted.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bellwether::Key;
use bellwether::adapter::{Backoff, jitter};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::context::LocksContext;
use super::error::LockError;
use super::guard::LockGuard;
use super::hold::{HoldState, LockHold};
use super::local_queue::{PermitState, QueuePermit, QueueTicket};
use super::policy::{LockPolicy, TakeOverPolicy, WaitLimit, far};
use super::release::{ClaimGuard, ReleaseDuty};
use super::renewal::valid_until;
use super::renewal_task::ActiveHold;
use super::{Attempt, Busy, Claim, Grant, Holder, Lock, Owner, Request, Term, Watch};
use crate::LockErrorKind;

/// One caller's attempt to get a key.
pub(super) struct Acquisition<'a, L> {
    lock: &'a L,
    context: &'a Arc<LocksContext>,
    policy: &'a LockPolicy<L>,
    key: &'a Key,
    limit: WaitLimit,
    began: Instant,
    claim: &'a Claim,
    owner: Owner,
    /// When the next counted try is due.
    due: Instant,
    /// How many counted tries are left.
    tries_left: u32,
    /// The holder that was seen last, and since when no other one and no renewal was seen.
    seen: Option<(Holder, Instant)>,
    /// The error of the last request, if it failed.
    last_error: Option<LockError>,
    /// Whether the lock has ever answered.
    is_answered: bool,
    /// Whether the claim may be in a queue of the lock.
    may_be_queued: bool,
    /// Whether a request may still be under way.
    is_unknown: bool,
}

/// How long to pause between requests.
struct AttemptPauses {
    while_busy: Backoff,
    after_error: Backoff,
}

impl AttemptPauses {
    fn of(watch: &Watch) -> Self {
        Self {
            while_busy: Backoff::backing_off(!watch.is_silent()),
            after_error: Self::after_error(),
        }
    }

    /// A watch does not report the end of an outage. And a lost answer may have been a grant, so it
    /// is asked for soon.
    fn after_error() -> Backoff {
        Backoff::backing_off(false)
    }

    fn next(&mut self, lease_left: Duration, is_error: bool) -> Duration {
        if is_error {
            return self.after_error.next(jitter(), lease_left);
        }
        self.after_error = Self::after_error();
        self.while_busy.next(jitter(), lease_left)
    }
}

/// What the local queue came to.
enum LocalTurn<L> {
    Permitted(QueuePermit),
    /// The owner holds the key, and has taken it again.
    Again(LockGuard<L>),
}

/// What one request came to.
enum RequestOutcome {
    Granted(Grant, Instant),
    /// Another holder has the key. Says whether the lock itself has waited already.
    Busy(Busy, bool),
}

impl<'a, L: Lock> Acquisition<'a, L> {
    pub(super) fn new(
        lock: &'a L,
        context: &'a Arc<LocksContext>,
        policy: &'a LockPolicy<L>,
        claim: &'a Claim,
        limit: WaitLimit,
    ) -> Self {
        let began = Instant::now();
        let owner = policy.owner.unwrap_or_else(|| Owner::of(claim));
        Self {
            lock,
            context,
            policy,
            key: claim.key(),
            limit,
            began,
            claim,
            owner,
            due: began,
            tries_left: 0,
            seen: None,
            last_error: None,
            is_answered: false,
            may_be_queued: false,
            is_unknown: false,
        }
    }

    pub(super) async fn guard(mut self, runtime: Handle) -> Result<LockGuard<L>, LockError> {
        if self.limit.deadline().is_some_and(|deadline| deadline <= self.began) {
            return Err(self.timed_out());
        }
        let permit = match self.context.queues.enter(self.key.digest(), self.owner) {
            Ok(permit) => permit,
            Err(ticket) => match self.wait(ticket, &runtime).await? {
                LocalTurn::Permitted(permit) => permit,
                LocalTurn::Again(guard) => return Ok(guard),
            },
        };
        self.count_tries_of_queue();
        let pending = self.pending(Some(permit), runtime);
        // Made before the first request, so that a release between its answer and the wait is seen.
        let mut watch = self.context.lock.watch(self.key);
        match self.granted(&mut watch).await {
            Ok((grant, asked_at)) => self.hold(pending, grant, asked_at, watch),
            Err(error) => {
                self.end(pending);
                Err(error)
            }
        }
    }

    /// Waits in the local queue, and asks meanwhile whether the owner holds the key in another
    /// process: callers that are first may wait for this very owner.
    async fn wait(&self, ticket: QueueTicket, runtime: &Handle) -> Result<LocalTurn<L>, LockError> {
        let Some(until) = self.limit.queue_deadline() else {
            let refused = match ticket.try_permit().await {
                Ok(permit) => return Ok(LocalTurn::Permitted(permit)),
                Err(PermitState::Held) => LockError::busy(self.key),
                Err(PermitState::Releasing) => LockError::unreleased(self.key),
            };
            return self.again(runtime).await.map(LocalTurn::Again).ok_or(refused);
        };
        let mut permitted = pin!(timeout_at(until, ticket.permit()));
        // Polled first, because that takes its place in the queue.
        let at_once = poll_fn(|context| Poll::Ready(permitted.as_mut().poll(context))).await;
        let permitted = match at_once {
            Poll::Ready(permitted) => permitted,
            Poll::Pending => match self.again(runtime).await {
                Some(guard) => return Ok(LocalTurn::Again(guard)),
                None => permitted.await,
            },
        };
        permitted.ok().flatten().map(LocalTurn::Permitted).ok_or_else(|| self.timed_out())
    }

    /// Takes the key again if the owner holds it. Without a permit: no caller waits for this hold
    /// but those that wait for the owner's others. An error decides nothing: the key may still be
    /// granted with a permit, to another claim than the one that is released here.
    async fn again(&self, runtime: &Handle) -> Option<LockGuard<L>> {
        self.policy.owner?;
        let claim = Claim::new(self.key.clone());
        let mut asks = Acquisition::new(self.lock, self.context, self.policy, &claim, self.limit);
        let pending = asks.pending(None, runtime.clone());
        let watch = self.context.lock.watch(self.key);
        match asks.ask(Duration::ZERO, true).await {
            Ok(RequestOutcome::Granted(grant, asked_at)) => {
                return asks.hold(pending, grant, asked_at, watch).ok();
            }
            Ok(RequestOutcome::Busy(..)) => {}
            Err(error) => {
                tracing::debug!(target: "bellwether::lock", key = %self.key, %error, "a lock was not taken again");
            }
        }
        asks.end(pending);
        None
    }

    /// Releases what the claim may have got.
    fn end(&self, pending: ClaimGuard) {
        match (self.is_unknown, self.may_be_queued) {
            (true, _) => drop(pending),
            (false, true) => pending.leave_queue(),
            (false, false) => pending.refused(),
        }
    }

    fn pending(&self, permit: Option<QueuePermit>, runtime: Handle) -> ClaimGuard {
        ClaimGuard::new(ReleaseDuty {
            context: self.context.counted(),
            runtime,
            claim: self.claim.clone(),
            lease: self.policy.lease,
            max_hold: self.policy.max_hold,
            permit,
        })
    }

    fn hold(
        &self,
        pending: ClaimGuard,
        grant: Grant,
        asked_at: Instant,
        watch: Watch,
    ) -> Result<LockGuard<L>, LockError> {
        let (session, until) = match grant.term {
            Term::Lease => (None, Some(valid_until(asked_at, self.policy.lease))),
            Term::Session(session) => (Some(session), None),
        };
        let state = HoldState::Held { until };
        let hold = Arc::new(LockHold::new(self.claim.clone(), grant.fence, state, session));
        let duty = pending.granted().ok_or_else(|| LockError::lost(self.key))?;
        Ok(LockGuard::new(ActiveHold::begin(hold, duty, asked_at, watch)))
    }

    /// Asks until the key is granted.
    async fn granted(&mut self, watch: &mut Watch) -> Result<(Grant, Instant), LockError> {
        let mut pauses = AttemptPauses::of(watch);
        loop {
            let (busy, has_waited) = match self.ask(self.patience(), false).await? {
                RequestOutcome::Granted(grant, asked_at) => return Ok((grant, asked_at)),
                RequestOutcome::Busy(busy, has_waited) => (busy, has_waited),
            };
            let Some(wake) = self.wake(&busy, &mut pauses, has_waited) else {
                let is_try = matches!(self.limit, WaitLimit::Try);
                return Err(if is_try { LockError::busy(self.key) } else { self.timed_out() });
            };
            tokio::select! {
                biased;
                _ = watch.changed() => {}
                () = sleep_until(wake) => {}
            }
            self.count_try();
        }
    }

    /// Asks once. `again` is for an owner that may hold the key.
    async fn ask(&mut self, patience: Duration, again: bool) -> Result<RequestOutcome, LockError> {
        let request = Request::new(self.claim.clone(), self.policy.lease)
            .owned_by(self.owner)
            .patient_for(patience)
            .repeated(self.is_answered)
            .again(again);
        let asked_at = Instant::now();
        let answer = match self.silent_holder(asked_at) {
            Some((take_over, holder)) => (take_over.ask)(self.lock, request, holder),
            None => self.lock.acquire(request),
        };
        self.may_be_queued |= !patience.is_zero();
        let answer = match self.limit.deadline() {
            None => answer.await,
            Some(deadline) => timeout_at(deadline, answer).await.map_err(|_| {
                self.is_unknown = true;
                self.timed_out()
            })?,
        };
        let has_waited = !patience.is_zero() && asked_at.elapsed() >= patience;
        match answer.and_then(|attempt| self.check(attempt, asked_at)) {
            Ok(Attempt::Granted(grant)) => Ok(RequestOutcome::Granted(grant, asked_at)),
            Ok(Attempt::Busy(busy)) => {
                self.see(busy.holder);
                self.is_answered = true;
                self.last_error = None;
                Ok(RequestOutcome::Busy(busy, has_waited))
            }
            Err(error) => self.failed(error),
        }
    }

    /// A transient error counts as busy once the lock has answered that another holder has the key, or
    /// that its slot is moving, because that ends by itself.
    fn failed(&mut self, error: LockError) -> Result<RequestOutcome, LockError> {
        self.is_unknown |= error.is_unknown();
        self.is_answered |= error.was_busy() || error.is_of_move();
        let is_waited_out =
            self.is_answered && error.is_transient() && !matches!(self.limit, WaitLimit::Try);
        if !is_waited_out {
            return Err(LockError::of_key(self.key, error));
        }
        self.last_error = Some(error);
        Ok(RequestOutcome::Busy(Busy::new(), false))
    }

    /// Refuses a grant that has ended before its answer came.
    fn check(&self, attempt: Attempt, asked_at: Instant) -> Result<Attempt, LockError> {
        let late = match &attempt {
            Attempt::Granted(Grant { term: Term::Lease, .. }) => {
                let until = valid_until(asked_at, self.policy.lease);
                (until <= Instant::now()).then_some((LockErrorKind::NoReply, "its lease had ended"))
            }
            Attempt::Granted(Grant { term: Term::Session(session), .. }) => {
                session.has_ended().then_some((LockErrorKind::Unreachable, "its session had ended"))
            }
            Attempt::Busy(_) => None,
        };
        let Some((kind, what)) = late else { return Ok(attempt) };
        Err(LockError::new(kind, format!("{what} when its grant arrived")))
    }

    /// How long the lock itself may wait: until the next counted try or the deadline, and for a
    /// third of the lease at most, because a lease counts from the request.
    fn patience(&self) -> Duration {
        let until = match self.limit {
            WaitLimit::Try => return Duration::ZERO,
            WaitLimit::Tries { .. } if self.tries_left == 0 => return Duration::ZERO,
            WaitLimit::Tries { .. } => self.due,
            WaitLimit::Until(deadline) => deadline,
        };
        let left = until.saturating_duration_since(Instant::now());
        // An answer after the deadline would be ignored, so this leaves time for it.
        let patience = left.saturating_sub(ANSWER.min(left / 4)).min(self.policy.lease / 3);
        if patience < LEAST { Duration::ZERO } else { patience }
    }

    /// When to ask again, if at all.
    fn wake(&self, busy: &Busy, pauses: &mut AttemptPauses, has_waited: bool) -> Option<Instant> {
        let now = Instant::now();
        match self.limit {
            WaitLimit::Try => None,
            WaitLimit::Tries { .. } => (self.tries_left > 0).then_some(self.due),
            WaitLimit::Until(deadline) if now >= deadline => None,
            WaitLimit::Until(deadline) => {
                let left = busy.remaining.unwrap_or(Duration::MAX);
                let pause = match has_waited {
                    true => Duration::ZERO,
                    false => pauses.next(left, self.last_error.is_some()),
                };
                let silence = self.silence_ends().filter(|at| *at > now);
                Some(silence.map_or(now + pause, |at| at.min(now + pause)).min(deadline))
            }
        }
    }

    /// Counts the next try if it is due. A try that a release woke comes earlier, and is not
    /// counted.
    fn count_try(&mut self) {
        let now = Instant::now();
        if let WaitLimit::Tries { interval, .. } = self.limit
            && now >= self.due
        {
            self.tries_left -= 1;
            self.due = far(now, interval);
        }
    }

    /// Counts the tries whose time has passed in the local queue.
    fn count_tries_of_queue(&mut self) {
        if let WaitLimit::Tries { more, interval } = self.limit {
            let passed = self.began.elapsed().as_nanos() / interval.as_nanos().max(1);
            self.tries_left = more.saturating_sub(u32::try_from(passed).unwrap_or(u32::MAX));
            self.due = far(Instant::now(), interval);
        }
    }

    fn see(&mut self, holder: Option<Holder>) {
        let same = self.seen.filter(|(seen, _)| Some(*seen) == holder);
        self.seen = same.or_else(|| holder.map(|holder| (holder, Instant::now())));
    }

    /// When the holder will have been silent for too long.
    fn silence_ends(&self) -> Option<Instant> {
        let after = self.policy.take_over?.after.max(self.policy.lease * 2 / 3);
        self.seen.map(|(_, since)| far(since, after))
    }

    /// The holder, if it has been silent for too long, and how to take the key over.
    fn silent_holder(&self, now: Instant) -> Option<(TakeOverPolicy<L>, Holder)> {
        let take_over = self.policy.take_over?;
        let (holder, _) = self.seen?;
        (self.silence_ends()? <= now).then_some((take_over, holder))
    }

    fn timed_out(&self) -> LockError {
        LockError::timed_out(self.key, self.began.elapsed(), self.last_error.as_ref())
    }
}

/// How long an answer takes after the lock has waited as long as it may.
const ANSWER: Duration = Duration::from_millis(50);

/// The shortest patience: for less, the claim joins no queue of the lock.
const LEAST: Duration = Duration::from_millis(5);
