//! One caller's way to a lock: through the gate, then asking until it is granted.

use std::sync::Arc;
use std::time::Duration;

use bellwether::adapter::{Backoff, jitter};
use bellwether::{Key, StoreError, StoreErrorKind};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::error::{LockError, is_unknown, may_pass};
use super::gates::Pass;
use super::held::{Held, Hold, State};
use super::keeper::{Keeping, valid_until};
use super::lock_wait::LockWait;
use super::locks::{Locks, Succession};
use super::release::{Asking, Claimed};
use super::{Attempt, Busy, Claim, Grant, Holder, Lock, Owner, Request, Term, Watch};

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// Not at all.
    Try,
    /// So often after the first try, so far apart.
    Tries { more: u32, interval: Duration },
    /// Until then.
    Until(Instant),
}

impl Limit {
    pub(super) fn of(wait: &LockWait) -> Self {
        match wait.interval {
            _ if wait.limit.is_zero() => Self::Try,
            Some(interval) => {
                let more = wait.limit.as_nanos() / interval.as_nanos().max(1);
                Self::Tries { more: u32::try_from(more).unwrap_or(u32::MAX), interval }
            }
            None => Self::Until(far(Instant::now(), wait.limit)),
        }
    }

    /// Until when others of this process are waited for.
    fn gate(&self) -> Option<Instant> {
        match self {
            Self::Try => None,
            Self::Tries { more, interval } => {
                Some(far(Instant::now(), interval.saturating_mul(*more)))
            }
            Self::Until(deadline) => Some(*deadline),
        }
    }

    /// Until when an answer is waited for.
    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Until(deadline) => Some(*deadline),
            Self::Try | Self::Tries { .. } => None,
        }
    }
}

/// An instant that far away, or as far as there is any.
fn far(from: Instant, duration: Duration) -> Instant {
    from + duration.min(Duration::from_secs(366 * 24 * 60 * 60))
}

/// One caller that wants a key.
pub(super) struct Waiting<'a, L> {
    locks: &'a Locks<L>,
    key: &'a Key,
    limit: Limit,
    began: Instant,
    claim: Claim,
    owner: Owner,
    /// When the next of so many tries is due, and how many there are.
    due: Instant,
    left: u32,
    /// Who holds it, and since when nothing else was heard.
    seen: Option<(Holder, Instant)>,
    /// What was the matter the last time.
    trouble: Option<StoreError>,
    /// Whether an answer was ever heard.
    is_answered: bool,
    /// Whether there may be a place in a queue.
    waits: bool,
    /// Whether a question may still be under way.
    is_unknown: bool,
}

/// How long to pause between questions.
struct Paces {
    while_busy: Backoff,
    in_trouble: Backoff,
}

impl Paces {
    fn of(watch: &Watch) -> Self {
        Self { while_busy: Backoff::backing_off(!watch.is_silent()), in_trouble: Self::trouble() }
    }

    /// Nobody tells when trouble is over, and what the lost answer said may be that it is ours.
    fn trouble() -> Backoff {
        Backoff::backing_off(false)
    }

    fn next(&mut self, lease_left: Duration, is_trouble: bool) -> Duration {
        if is_trouble {
            return self.in_trouble.next(jitter(), lease_left);
        }
        self.in_trouble = Self::trouble();
        self.while_busy.next(jitter(), lease_left)
    }
}

/// What one question came to.
enum Asked {
    Granted(Grant, Instant),
    /// Somebody else has it; whether the lock itself has waited already.
    Busy(Busy, bool),
}

impl<'a, L: Lock> Waiting<'a, L> {
    pub(super) fn new(locks: &'a Locks<L>, key: &'a Key, limit: Limit) -> Self {
        let began = Instant::now();
        let claim = Claim::new(key.clone());
        let owner = locks.knobs.owner.unwrap_or_else(|| Owner::of(&claim));
        Self {
            locks,
            key,
            limit,
            began,
            claim,
            owner,
            due: began,
            left: 0,
            seen: None,
            trouble: None,
            is_answered: false,
            waits: false,
            is_unknown: false,
        }
    }

    pub(super) async fn held(mut self, runtime: Handle) -> Result<Held<L>, LockError> {
        if self.limit.deadline().is_some_and(|deadline| deadline <= self.began) {
            return Err(self.timed_out());
        }
        let pass = self.pass().await?;
        self.count_passed();
        let asking = self.asking(pass, runtime);
        // Before the first question, or a release between the answer and the wait would be missed.
        let mut watch = self.locks.shared.lock.watch(self.key);
        match self.granted(&mut watch).await {
            Ok((grant, asked_at)) => self.hold(asking, grant, asked_at, watch),
            Err(error) => {
                match (self.is_unknown, self.waits) {
                    (true, _) => drop(asking),
                    (false, true) => asking.left(),
                    (false, false) => asking.refused(),
                }
                Err(error)
            }
        }
    }

    /// Waits for the others of this process.
    async fn pass(&self) -> Result<Pass, LockError> {
        let gates = &self.locks.shared.keepers.gates;
        let place = match gates.enter(self.key.digest(), self.owner) {
            Ok(pass) => return Ok(pass),
            Err(place) => place,
        };
        let Some(until) = self.limit.gate() else {
            return place.try_pass().await.ok_or_else(|| LockError::busy(self.key));
        };
        let passed = timeout_at(until, place.pass()).await;
        passed.ok().flatten().ok_or_else(|| self.timed_out())
    }

    fn asking(&self, pass: Pass, runtime: Handle) -> Asking {
        let knobs = &self.locks.knobs;
        Asking::new(Claimed {
            keepers: self.locks.shared.keepers.counted(),
            runtime,
            claim: self.claim.clone(),
            lease: knobs.lease,
            max_hold: knobs.max_hold,
            pass: Some(pass),
        })
    }

    fn hold(
        &self,
        asking: Asking,
        grant: Grant,
        asked_at: Instant,
        hints: Watch,
    ) -> Result<Held<L>, LockError> {
        let (session, until) = match grant.term {
            Term::Lease => (None, Some(valid_until(asked_at, self.locks.knobs.lease))),
            Term::Session(session) => (Some(session), None),
        };
        let state = State::Held { until };
        let hold = Arc::new(Hold::new(self.key.clone(), grant.fence, state, session));
        let claimed = asking.granted().ok_or_else(|| LockError::lost(self.key))?;
        Ok(Held::new(Keeping::begin(hold, claimed, asked_at, hints)))
    }

    /// Asks until it is granted.
    async fn granted(&mut self, watch: &mut Watch) -> Result<(Grant, Instant), LockError> {
        let mut pauses = Paces::of(watch);
        loop {
            let (busy, has_waited) = match self.ask().await? {
                Asked::Granted(grant, asked_at) => return Ok((grant, asked_at)),
                Asked::Busy(busy, has_waited) => (busy, has_waited),
            };
            let Some(wake) = self.wake(&busy, &mut pauses, has_waited) else {
                let is_try = matches!(self.limit, Limit::Try);
                return Err(if is_try { LockError::busy(self.key) } else { self.timed_out() });
            };
            tokio::select! {
                biased;
                () = watch.changed() => {}
                () = sleep_until(wake) => {}
            }
            self.count();
        }
    }

    /// Asks once.
    async fn ask(&mut self) -> Result<Asked, LockError> {
        let patience = self.patience();
        let request = Request::new(self.claim.clone(), self.locks.knobs.lease)
            .owned_by(self.owner)
            .patient_for(patience);
        let asked_at = Instant::now();
        let lock = &self.locks.shared.lock;
        let answer = match self.silent_holder(asked_at) {
            Some((succession, holder)) => (succession.ask)(lock, request, holder),
            None => lock.acquire(request),
        };
        self.waits |= !patience.is_zero();
        let answer = match self.limit.deadline() {
            Some(deadline) => match timeout_at(deadline, answer).await {
                Ok(answer) => answer,
                Err(_) => {
                    self.is_unknown = true;
                    return Err(self.timed_out());
                }
            },
            None => answer.await,
        };
        let has_waited = !patience.is_zero() && asked_at.elapsed() >= patience;
        match answer.and_then(|attempt| self.check(attempt, asked_at)) {
            Ok(Attempt::Granted(grant)) => Ok(Asked::Granted(grant, asked_at)),
            Ok(Attempt::Busy(busy)) => {
                self.see(busy.holder);
                (self.is_answered, self.trouble) = (true, None);
                Ok(Asked::Busy(busy, has_waited))
            }
            Err(error) => {
                self.is_unknown |= is_unknown(&error);
                let is_waited_out =
                    self.is_answered && may_pass(&error) && !matches!(self.limit, Limit::Try);
                if !is_waited_out {
                    return Err(LockError::store(self.key, &error));
                }
                self.trouble = Some(error);
                Ok(Asked::Busy(Busy::new(), false))
            }
        }
    }

    /// Whether what was granted holds at all, now that the answer is here.
    fn check(&self, attempt: Attempt, asked_at: Instant) -> Result<Attempt, StoreError> {
        let late = match &attempt {
            Attempt::Granted(Grant { term: Term::Lease, .. }) => {
                let until = valid_until(asked_at, self.locks.knobs.lease);
                (until <= Instant::now())
                    .then_some((StoreErrorKind::TimedOut, "its lease had ended"))
            }
            Attempt::Granted(Grant { term: Term::Session(session), .. }) => session
                .has_ended()
                .then_some((StoreErrorKind::Unreachable, "its session had ended")),
            Attempt::Busy(_) => None,
        };
        match late {
            Some((kind, what)) => {
                Err(StoreError::new(kind, format!("{what} when its grant was heard of")))
            }
            None => Ok(attempt),
        }
    }

    /// How long the lock itself may wait: until the next try of ours, and never so long that much
    /// of a lease would be over.
    fn patience(&self) -> Duration {
        let until = match self.limit {
            Limit::Try => return Duration::ZERO,
            Limit::Tries { .. } if self.left == 0 => return Duration::ZERO,
            Limit::Tries { .. } => self.due,
            Limit::Until(deadline) => deadline,
        };
        let left = until.saturating_duration_since(Instant::now());
        // The answer has to be here in time, or nobody hears it.
        let patience = left.saturating_sub(ANSWER.min(left / 4)).min(self.locks.knobs.lease / 3);
        if patience < LEAST { Duration::ZERO } else { patience }
    }

    /// When to ask again, if at all.
    fn wake(&self, busy: &Busy, pauses: &mut Paces, has_waited: bool) -> Option<Instant> {
        let now = Instant::now();
        match self.limit {
            Limit::Try => None,
            Limit::Tries { .. } => (self.left > 0).then_some(self.due),
            Limit::Until(deadline) if now >= deadline => None,
            Limit::Until(deadline) => {
                let left = busy.remaining.unwrap_or(Duration::MAX);
                let pause = match has_waited {
                    true => Duration::ZERO,
                    false => pauses.next(left, self.trouble.is_some()),
                };
                let silence = self.silence_ends().filter(|at| *at > now);
                Some(silence.map_or(now + pause, |at| at.min(now + pause)).min(deadline))
            }
        }
    }

    /// Counts the try that comes now, if it is one of those that are counted: who is told of a
    /// release tries once more.
    fn count(&mut self) {
        let now = Instant::now();
        if let Limit::Tries { interval, .. } = self.limit
            && now >= self.due
        {
            self.left -= 1;
            self.due = far(now, interval);
        }
    }

    /// Counts those tries whose time has gone by in front of the gate.
    fn count_passed(&mut self) {
        if let Limit::Tries { more, interval } = self.limit {
            let passed = self.began.elapsed().as_nanos() / interval.as_nanos().max(1);
            self.left = more.saturating_sub(u32::try_from(passed).unwrap_or(u32::MAX));
            self.due = far(Instant::now(), interval);
        }
    }

    fn see(&mut self, holder: Option<Holder>) {
        let same = self.seen.filter(|(seen, _)| Some(*seen) == holder);
        self.seen = same.or_else(|| holder.map(|holder| (holder, Instant::now())));
    }

    /// When the holder will have been silent for too long.
    fn silence_ends(&self) -> Option<Instant> {
        let knobs = &self.locks.knobs;
        let after = knobs.take_over?.after.max(knobs.lease * 2 / 3);
        self.seen.map(|(_, since)| far(since, after))
    }

    /// Who has been silent for too long, and how to take it from them.
    fn silent_holder(&self, now: Instant) -> Option<(Succession<L>, Holder)> {
        let succession = self.locks.knobs.take_over?;
        let (holder, _) = self.seen?;
        (self.silence_ends()? <= now).then_some((succession, holder))
    }

    fn timed_out(&self) -> LockError {
        LockError::timed_out(self.key, self.began.elapsed(), self.trouble.as_ref())
    }
}

/// How long an answer takes that the lock has held back for as long as it may.
const ANSWER: Duration = Duration::from_millis(50);

/// The least patience that is worth a place in a queue.
const LEAST: Duration = Duration::from_millis(5);
