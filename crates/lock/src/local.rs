//! `LocalLock`: the reference implementation of the contract, for the tasks of one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::Key;
use bellwether::adapter::locked;
use bellwether::store::{Clock, Digest, Moment};

use super::{
    Attempt, Busy, Claim, Fenced, Grant, Holder, LocalQueues, Lock, LockFuture, Released, Renew,
    Request, TakeOver, Token, Watch, Watchers,
};

/// Locks in the memory of this process.
///
/// A handle: clones share one state. It is for the tasks of one process, and replaces the other
/// locks in tests: holders that do not renew lose their keys here too.
///
/// Its fences come from one counter for all keys, which is never below the time in microseconds. So
/// nothing is kept for a key, and fences grow over restarts unless the system's clock is put back.
///
/// ```
/// use std::time::Duration;
///
/// use bellwether::Key;
/// use bellwether::store::Claim;
/// use bellwether_lock::{Attempt, LocalLock, Lock, Request};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), bellwether_lock::LockError> {
/// let lock = LocalLock::new();
/// let claim = Claim::new(Key::of("stock").with(42));
/// let request = Request::new(claim.clone(), Duration::from_secs(30));
/// assert!(matches!(lock.acquire(request).await?, Attempt::Granted(_)));
/// lock.release(claim).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LocalLock(Arc<Inner>);

struct Inner {
    /// Held for a few operations on the table, never across an `.await`.
    table: Mutex<LocalTable>,
    watchers: Watchers,
    queues: LocalQueues,
    clock: Clock,
}

#[derive(Default)]
struct LocalTable {
    /// Some of them may have ended.
    holds: HashMap<Digest, LocalHold>,
    /// With more holds than that, those that have ended are removed.
    most: usize,
    last_fence: u64,
}

/// The hold of one key.
struct LocalHold {
    token: Token,
    fence: u64,
    ends: Moment,
    renewed_at: u64,
}

impl LocalLock {
    /// A lock of which no key is held.
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            table: Mutex::default(),
            watchers: Watchers::default(),
            queues: LocalQueues::default(),
            clock: Clock::start(),
        }))
    }

    /// How many keys are held.
    pub fn len(&self) -> usize {
        let now = self.0.clock.now();
        locked(&self.0.table).holds.values().filter(|hold| hold.ends > now).count()
    }

    /// Whether no key is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs an operation when its future is polled, not before.
    fn answer<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Self, Moment) -> T + Send + 'static,
    ) -> LockFuture<T> {
        let lock = self.clone();
        Box::pin(async move { Ok(operation(&lock, lock.0.clock.now())) })
    }
}

impl Lock for LocalLock {
    fn watch(&self, key: &Key) -> Watch {
        self.0.watchers.watch(key.digest())
    }

    fn acquire(&self, request: Request) -> LockFuture<Attempt> {
        self.answer(move |lock, now| locked(&lock.0.table).acquire(&request, None, now))
    }

    fn renew(&self, claim: &Claim, lease: Duration) -> LockFuture<Renew> {
        let claim = claim.clone();
        self.answer(move |lock, now| locked(&lock.0.table).renew(&claim, lease, now))
    }

    fn verify(&self, claim: &Claim) -> Option<LockFuture<Renew>> {
        let claim = claim.clone();
        Some(self.answer(move |lock, now| locked(&lock.0.table).verify(&claim, now)))
    }

    fn release(&self, claim: Claim) -> LockFuture<Released> {
        self.answer(move |lock, now| {
            let released = locked(&lock.0.table).release(&claim, now);
            if released == Released::Freed {
                lock.0.watchers.tell(&claim.key().digest(), None);
            }
            released
        })
    }

    fn local_queues(&self) -> LocalQueues {
        self.0.queues.clone()
    }
}

impl Fenced for LocalLock {}

impl TakeOver for LocalLock {
    fn take_over(&self, request: Request, from: Holder) -> LockFuture<Attempt> {
        self.answer(move |lock, now| {
            let attempt = locked(&lock.0.table).acquire(&request, Some(from), now);
            if matches!(attempt, Attempt::Granted(_)) {
                lock.0.watchers.tell(&request.claim.key().digest(), None);
            }
            attempt
        })
    }
}

impl Default for LocalLock {
    fn default() -> Self {
        Self::new()
    }
}

bellwether::debug_fields! { LocalLock => |it| held = it.len() }

impl LocalTable {
    /// The hold of a key, unless its lease has ended.
    fn hold(&mut self, key: &Key, now: Moment) -> Option<&mut LocalHold> {
        self.holds.get_mut(&key.digest()).filter(|hold| hold.ends > now)
    }

    fn hold_of(&mut self, claim: &Claim, now: Moment) -> Option<&mut LocalHold> {
        self.hold(claim.key(), now).filter(|hold| hold.token == claim.token())
    }

    fn acquire(&mut self, request: &Request, from: Option<Holder>, now: Moment) -> Attempt {
        let Request { claim, lease, .. } = request;
        let token = claim.token();
        let fence = match self.hold(claim.key(), now) {
            Some(hold) if hold.token == token => hold.fence,
            Some(hold) if from != Some(hold.holder()) => {
                let holder = Some(hold.holder());
                let remaining = Some(now.until(hold.ends));
                return Attempt::Busy(Busy { holder, remaining, ahead: None });
            }
            _ => self.next_fence(now),
        };
        if self.holds.len() >= self.most {
            self.holds.retain(|_, hold| hold.ends > now);
            self.most = 2 * self.holds.len() + 16;
        }
        let hold = LocalHold { token, fence, ends: now.after(*lease), renewed_at: millis(now) };
        self.holds.insert(claim.key().digest(), hold);
        Attempt::Granted(Grant::by_lease().fenced(fence))
    }

    fn renew(&mut self, claim: &Claim, lease: Duration, now: Moment) -> Renew {
        let Some(hold) = self.hold_of(claim, now) else { return Renew::Lost };
        (hold.ends, hold.renewed_at) = (now.after(lease), millis(now));
        Renew::Held
    }

    fn verify(&mut self, claim: &Claim, now: Moment) -> Renew {
        if self.hold_of(claim, now).is_some() { Renew::Held } else { Renew::Lost }
    }

    fn release(&mut self, claim: &Claim, now: Moment) -> Released {
        if self.hold_of(claim, now).is_none() {
            return Released::NotHeld;
        }
        self.holds.remove(&claim.key().digest());
        Released::Freed
    }

    fn next_fence(&mut self, now: Moment) -> u64 {
        self.last_fence = now.micros.max(self.last_fence + 1);
        self.last_fence
    }
}

impl LocalHold {
    fn holder(&self) -> Holder {
        Holder::new(self.fence, self.renewed_at)
    }
}

fn millis(now: Moment) -> u64 {
    now.micros / 1000
}
