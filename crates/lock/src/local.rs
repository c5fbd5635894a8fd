//! `LocalLock`: the reference implementation of the contract, for the tasks of one process.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::store::{Clock, Moment};
use bellwether::{Digest, Key};
use tokio::time::Instant;

use super::{
    Attempt, Busy, Claim, Fenced, Grant, Holder, LocalQueues, Lock, LockFuture, Released, Renew,
    Request,
};
use super::{TakeOver, Token, Watch, Watchers};

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
    holds: HashMap<Digest, LocalHold>,
    /// When each hold ends, the first one first.
    ends: BTreeSet<(Instant, Digest)>,
    last_fence: u64,
}

/// The hold of one key.
struct LocalHold {
    token: Token,
    fence: u64,
    ends: Instant,
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
        self.table(now).holds.len()
    }

    /// Whether no key is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The table, without the holds whose lease has ended.
    fn table(&self, now: Moment) -> MutexGuard<'_, LocalTable> {
        // A panic cannot leave the table half changed: no user code runs under this mutex.
        let mut table = self.0.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.forget_ended(now.instant());
        table
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
        self.answer(move |lock, now| lock.table(now).acquire(&request, None, now))
    }

    fn renew(&self, claim: &Claim, lease: Duration) -> LockFuture<Renew> {
        let claim = claim.clone();
        self.answer(move |lock, now| lock.table(now).renew(&claim, lease, now))
    }

    fn verify(&self, claim: &Claim) -> Option<LockFuture<Renew>> {
        let claim = claim.clone();
        Some(self.answer(move |lock, now| lock.table(now).verify(&claim)))
    }

    fn release(&self, claim: Claim) -> LockFuture<Released> {
        self.answer(move |lock, now| {
            let digest = claim.key().digest();
            let released = lock.table(now).release(&digest, claim.token());
            if released == Released::Freed {
                lock.0.watchers.tell(&digest);
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
            let attempt = lock.table(now).acquire(&request, Some(from), now);
            if matches!(attempt, Attempt::Granted(_)) {
                lock.0.watchers.tell(&request.claim.key().digest());
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

impl fmt::Debug for LocalLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalLock").field("held", &self.len()).finish()
    }
}

impl LocalTable {
    fn acquire(&mut self, request: &Request, from: Option<Holder>, now: Moment) -> Attempt {
        let digest = request.claim.key().digest();
        let token = request.claim.token();
        let fence = match self.holds.get(&digest) {
            Some(hold) if hold.token == token => hold.fence,
            Some(hold) if from != Some(hold.holder()) => {
                let holder = Some(hold.holder());
                let remaining = Some(now.until(hold.ends));
                return Attempt::Busy(Busy { holder, remaining, ahead: None });
            }
            _ => self.next_fence(now),
        };
        self.hold(&request.claim, fence, request.lease, now);
        Attempt::Granted(Grant::by_lease().fenced(fence))
    }

    fn renew(&mut self, claim: &Claim, lease: Duration, now: Moment) -> Renew {
        let ours = self.holds.get(&claim.key().digest());
        let ours = ours.filter(|hold| hold.token == claim.token());
        let Some(fence) = ours.map(|hold| hold.fence) else { return Renew::Lost };
        self.hold(claim, fence, lease, now);
        Renew::Held
    }

    fn verify(&self, claim: &Claim) -> Renew {
        let hold = self.holds.get(&claim.key().digest());
        let is_held = hold.is_some_and(|hold| hold.token == claim.token());
        if is_held { Renew::Held } else { Renew::Lost }
    }

    fn release(&mut self, digest: &Digest, token: Token) -> Released {
        match self.holds.get(digest) {
            Some(hold) if hold.token == token => {
                self.ends.remove(&(hold.ends, *digest));
                self.holds.remove(digest);
                Released::Freed
            }
            _ => Released::NotHeld,
        }
    }

    fn hold(&mut self, claim: &Claim, fence: u64, lease: Duration, now: Moment) {
        let (digest, token, ends) = (claim.key().digest(), claim.token(), now.after(lease));
        let hold = LocalHold { token, fence, ends, renewed_at: now.micros() / 1000 };
        if let Some(replaced) = self.holds.insert(digest, hold) {
            self.ends.remove(&(replaced.ends, digest));
        }
        self.ends.insert((ends, digest));
    }

    fn forget_ended(&mut self, now: Instant) {
        while let Some((ends, digest)) = self.ends.first().copied().filter(|(ends, _)| *ends <= now)
        {
            self.ends.remove(&(ends, digest));
            self.holds.remove(&digest);
        }
    }

    fn next_fence(&mut self, now: Moment) -> u64 {
        self.last_fence = now.micros().max(self.last_fence + 1);
        self.last_fence
    }
}

impl LocalHold {
    fn holder(&self) -> Holder {
        Holder::new(self.fence, self.renewed_at)
    }
}
