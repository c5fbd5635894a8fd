//! One caller's attempt to get a key: wait in the local queue, then ask the lock until it is
//! granted.

use std::sync::Arc;
use std::time::Duration;

use bellwether::Key;
use bellwether::adapter::{Backoff, jitter};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::context::LocksContext;
use super::error::LockError;
use super::hold::LockStatus;
use super::instants::{far, valid_until};
use super::local_queue::{PermitState, QueuePermit};
use super::policy::{LockPolicy, WaitLimit};
use super::release::{ClaimGuard, ReleaseDuty, Releasing};
use super::renewal_task::ActiveHold;
use super::{Attempt, Busy, Claim, Grant, Holder, Owner, Request, Term, Watch};
use crate::LockErrorKind;

/// One caller's attempt to get a key.
pub(super) struct Acquisition<'a> {
    context: &'a Arc<LocksContext>,
    policy: &'a LockPolicy,
    limit: WaitLimit,
    began: Instant,
    claim: Claim,
    owner: Owner,
    /// The holder that was seen last, and since when no other one and no renewal was seen.
    seen: Option<(Holder, Instant)>,
    /// When the last request was sent.
    asked_at: Instant,
    /// Whether the lock itself has waited during the last request.
    has_waited: bool,
    /// The error of the last request, if it failed.
    last_error: Option<LockError>,
    /// Whether the lock has ever answered.
    is_answered: bool,
    /// Whether the claim may be in a queue of the lock.
    may_be_queued: bool,
    /// Whether a request may still be under way.
    is_unknown: bool,
    while_busy: Backoff,
    /// A watch does not report the end of an outage. And a lost answer may have been a grant, so it
    /// is asked for soon.
    after_error: Backoff,
}

impl<'a> Acquisition<'a> {
    pub(super) fn new(
        context: &'a Arc<LocksContext>,
        policy: &'a LockPolicy,
        key: &Key,
        limit: WaitLimit,
    ) -> Self {
        let began = Instant::now();
        let claim = Claim::new(key.clone());
        let owner = policy.owner.unwrap_or_else(|| Owner::of(&claim));
        Self {
            context,
            policy,
            limit,
            began,
            claim,
            owner,
            seen: None,
            asked_at: began,
            has_waited: false,
            last_error: None,
            is_answered: false,
            may_be_queued: false,
            is_unknown: false,
            while_busy: Backoff::backing_off(false),
            after_error: Backoff::backing_off(false),
        }
    }

    pub(super) async fn hold(mut self, runtime: Handle) -> Result<Arc<ActiveHold>, LockError> {
        if self.limit.deadline().is_some_and(|deadline| deadline <= self.began) {
            return Err(self.timed_out());
        }
        let permit = self.permit().await?;
        let pending = self.pending(permit, runtime);
        // Made before the first request, so that a release between its answer and the wait is seen.
        let mut watch = self.context.lock.watch(self.claim.key());
        match self.granted(&mut watch).await {
            Ok(status) => {
                let lost = || LockError::lost(self.claim.key(), None);
                let duty = pending.take().ok_or_else(lost)?;
                Ok(ActiveHold::begin(status, duty, self.asked_at, watch))
            }
            Err(error) => {
                self.end(pending);
                Err(error)
            }
        }
    }

    /// Waits in the local queue.
    async fn permit(&self) -> Result<QueuePermit, LockError> {
        let ticket = match self.context.queues.enter(self.claim.key().digest(), self.owner) {
            Ok(permit) => return Ok(permit),
            Err(ticket) => ticket,
        };
        let Some(until) = self.limit.queue_deadline() else {
            return ticket.try_permit().await.map_err(|state| match state {
                PermitState::Held => LockError::busy(self.claim.key()),
                PermitState::Releasing => LockError::unreleased(self.claim.key()),
            });
        };
        let permit = timeout_at(until, ticket.permit()).await;
        permit.ok().flatten().ok_or_else(|| self.timed_out())
    }

    /// Releases what the claim may have got.
    fn end(&self, pending: ClaimGuard) {
        match (self.is_unknown, self.may_be_queued) {
            (true, _) => drop(pending),
            // Released at once, and in the background.
            (false, true) => drop(pending.take().map(|duty| Releasing::of(duty, None))),
            (false, false) => drop(pending.take()),
        }
    }

    fn pending(&self, permit: QueuePermit, runtime: Handle) -> ClaimGuard {
        ClaimGuard::new(ReleaseDuty {
            context: Arc::clone(self.context),
            _counted: self.context.claims.token(),
            runtime,
            claim: self.claim.clone(),
            lease: self.policy.lease,
            max_hold: self.policy.max_hold,
            permit: Some(permit),
        })
    }

    /// Asks until the key is granted.
    async fn granted(&mut self, watch: &mut Watch) -> Result<LockStatus, LockError> {
        self.while_busy = Backoff::backing_off(!watch.is_silent());
        loop {
            let busy = match self.ask(self.patience()).await? {
                Ok(status) => return Ok(status),
                Err(busy) => busy,
            };
            let Some(wake) = self.wake(&busy) else {
                let is_try = matches!(self.limit, WaitLimit::Try);
                return Err(if is_try {
                    LockError::busy(self.claim.key())
                } else {
                    self.timed_out()
                });
            };
            tokio::select! {
                biased;
                _ = watch.changed() => {}
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Asks once.
    async fn ask(&mut self, patience: Duration) -> Result<Result<LockStatus, Busy>, LockError> {
        let request = Request {
            claim: self.claim.clone(),
            owner: self.owner,
            lease: self.policy.lease,
            patience,
            is_repeated: self.is_answered,
        };
        self.asked_at = Instant::now();
        let is_silent = self.silence_ends().is_some_and(|at| at <= self.asked_at);
        let answer = match (&self.policy.take_over, self.seen) {
            (Some((_, lock)), Some((holder, _))) if is_silent => lock.take_over(request, holder),
            _ => self.context.lock.acquire(request),
        };
        self.may_be_queued |= !patience.is_zero();
        let answer = match self.limit.deadline() {
            None => answer.await,
            Some(deadline) => timeout_at(deadline, answer).await.map_err(|_| {
                self.is_unknown = true;
                self.timed_out()
            })?,
        };
        self.has_waited = !patience.is_zero() && self.asked_at.elapsed() >= patience;
        let status = match answer {
            Ok(Attempt::Granted(grant)) => self.status(grant),
            Ok(Attempt::Busy(busy)) => {
                self.see(busy.holder);
                self.is_answered = true;
                self.last_error = None;
                return Ok(Err(busy));
            }
            Err(error) => Err(error),
        };
        match status {
            Ok(status) => Ok(Ok(status)),
            Err(error) => self.failed(error).map(Err),
        }
    }

    /// A transient error counts as busy once the lock has answered that another holder has the key, or
    /// that its slot is moving, because that ends by itself.
    fn failed(&mut self, error: LockError) -> Result<Busy, LockError> {
        self.is_unknown |= error.is_unknown();
        self.is_answered |= error.was_busy() || error.is_of_move();
        let is_waited_out =
            self.is_answered && error.is_transient() && !matches!(self.limit, WaitLimit::Try);
        if !is_waited_out {
            return Err(LockError::of_key(self.claim.key(), error));
        }
        self.last_error = Some(error);
        self.has_waited = false;
        Ok(Busy::new())
    }

    /// The status of a hold, unless it has ended before its grant arrived.
    fn status(&self, grant: Grant) -> Result<LockStatus, LockError> {
        let (kind, until, session) = match grant.term {
            Term::Lease => {
                let until = valid_until(self.asked_at, self.policy.lease);
                (LockErrorKind::NoReply, Some(until), None)
            }
            Term::Session(session) => (LockErrorKind::Unreachable, None, Some(session)),
        };
        let status = LockStatus::new(self.claim.clone(), grant.fence, until, session);
        if status.is_lost() {
            let message = "its lease or session had ended when its grant arrived";
            return Err(LockError::new(kind, message));
        }
        Ok(status)
    }

    /// How long the lock itself may wait: until the next counted try or the deadline, and for a
    /// third of the lease at most, because a lease counts from the request.
    fn patience(&self) -> Duration {
        let until = match self.limit {
            WaitLimit::Try => return Duration::ZERO,
            WaitLimit::Tries { more, interval } => match self.next_try(more, interval) {
                Some(due) => due,
                None => return Duration::ZERO,
            },
            WaitLimit::Until(deadline) => deadline,
        };
        let left = until.saturating_duration_since(Instant::now());
        // An answer after the deadline would be ignored, so this leaves time for it.
        let patience = left.saturating_sub(ANSWER.min(left / 4)).min(self.policy.lease / 3);
        if patience < LEAST { Duration::ZERO } else { patience }
    }

    /// When to ask again, if at all.
    fn wake(&mut self, busy: &Busy) -> Option<Instant> {
        let now = Instant::now();
        match self.limit {
            WaitLimit::Try => None,
            WaitLimit::Tries { more, interval } => self.next_try(more, interval),
            WaitLimit::Until(deadline) if now >= deadline => None,
            WaitLimit::Until(deadline) => {
                let left = busy.remaining.unwrap_or(Duration::MAX);
                let pause = match self.last_error {
                    _ if self.has_waited => Duration::ZERO,
                    Some(_) => self.after_error.next(jitter(), left, Duration::ZERO),
                    None => {
                        self.after_error = Backoff::backing_off(false);
                        self.while_busy.next(jitter(), left, Duration::ZERO)
                    }
                };
                let silence = self.silence_ends().filter(|at| *at > now);
                Some(silence.map_or(now + pause, |at| at.min(now + pause)).min(deadline))
            }
        }
    }

    /// When the next try is due, if there is one. The time in the local queue counts. A try that a
    /// release woke comes earlier, and is not counted.
    fn next_try(&self, more: u32, interval: Duration) -> Option<Instant> {
        let passed = self.began.elapsed().as_nanos() / interval.as_nanos();
        let passed = u32::try_from(passed).ok().filter(|passed| *passed < more)?;
        Some(far(self.began, interval.saturating_mul(passed + 1)))
    }

    fn see(&mut self, holder: Option<Holder>) {
        let same = self.seen.filter(|(seen, _)| Some(*seen) == holder);
        self.seen = same.or_else(|| holder.map(|holder| (holder, Instant::now())));
    }

    /// When the holder will have been silent for too long.
    fn silence_ends(&self) -> Option<Instant> {
        let (after, _) = self.policy.take_over.as_ref()?;
        let after = *after.max(&(self.policy.lease * 2 / 3));
        self.seen.map(|(_, since)| far(since, after))
    }

    fn timed_out(&self) -> LockError {
        LockError::timed_out(self.claim.key(), self.began.elapsed(), self.last_error.as_ref())
    }
}

/// How long an answer takes after the lock has waited as long as it may.
const ANSWER: Duration = Duration::from_millis(50);

/// The shortest patience: for less, the claim joins no queue of the lock.
const LEAST: Duration = Duration::from_millis(5);
