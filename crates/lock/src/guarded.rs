//! `Guarded`: a store whose leases take a lock as well.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::adapter::warn_throttled;
use bellwether::store::{
    Accept, Acquire, Commit, Draft, Entry, Failure, InProcessStore, Lease, OtherLease, Peek, Renew,
    Store, StoreFuture, Watch,
};
use bellwether::{Digest, Key, StoreError, Tag, Tags};
use futures_util::future::join;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Attempt, Claim, Lock, Request};

/// A store whose entries are in one system, and whose leases take a lock of another.
///
/// A leader needs the lock first, and then the store's own lease, both by one claim. So one leader
/// at a time loads a key as long as **either** system keeps its promise. For example, Redis may
/// lose an acknowledged lease in a failover; there is no second load while ZooKeeper still has the
/// first claim.
///
/// ```
/// use bellwether_lock::{Guarded, LocalLock};
/// use bellwether::{Key, MemoryStore, ReadThroughLayer};
///
/// let store = Guarded::new(MemoryStore::new(10_000), LocalLock::new());
/// let layer = ReadThroughLayer::new(store, |sku: &u64| Key::of("item").with(*sku));
/// # let _ = layer;
/// ```
///
/// # Late writers
/// Fences, invalidation watermarks and the failure cache are those of the store, which checks them
/// in the step in which it stores. It refuses a holder that has lost the lock, the lease or both,
/// as it does without a lock: by the fence of a later entry, or by the watermark of an
/// invalidation. None of this depends on the lock, so a lock without fences will do.
///
/// # What is weaker than the store alone
/// - A miss costs two round trips, one after the other, and the end of a load two more. Hits cost
///   what they cost without a lock.
/// - Both systems have to be available. If one is not, acquiring fails, and
///   [`WhenStoreFails`](bellwether::WhenStoreFails) decides.
/// - An invalidation ends the store's half of a lease at once, and the lock's half too if this
///   process has it. Another process releases its lock with the next renewal, a third of the lease
///   later. Until then there is no new leader, and the watermark refuses what the old one has
///   loaded.
/// - When a process dies, its keys are free when both halves have ended: after the longer of the
///   lease and the session.
///
/// A lock by sessions does not end with a lease. Here it is released when the lease has ended
/// without being renewed.
pub struct Guarded<S, L>(Arc<Inner<S, L>>);

struct Inner<S, L> {
    store: S,
    lock: L,
    /// What this process holds of the lock. Held for a map operation, never across an `.await`.
    holds: Mutex<HashMap<Digest, Vec<GuardedHold>>>,
}

/// One hold of the lock, for one lease.
struct GuardedHold {
    claim: Claim,
    /// When the lease ends, if it is not renewed. Dropping the sender ends the task that waits for
    /// that.
    ends: watch::Sender<Instant>,
}

impl<S: Store, L: Lock> Guarded<S, L> {
    /// This store, with leases that take this lock. Use the lock's keys for nothing else.
    pub fn new(store: S, lock: L) -> Self {
        Self(Arc::new(Inner { store, lock, holds: Mutex::default() }))
    }

    /// How many leases of this process hold the lock.
    pub fn leases(&self) -> usize {
        self.holds().values().map(Vec::len).sum()
    }

    fn holds(&self) -> MutexGuard<'_, HashMap<Digest, Vec<GuardedHold>>> {
        // A panic cannot leave the map half changed: no user code runs under this mutex.
        self.0.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock and then the store's lease, or returns what the store has instead.
    async fn lead(
        &self,
        claim: Claim,
        term: Duration,
        accept: Accept,
    ) -> Result<Acquire, StoreError> {
        match self.0.lock.acquire(Request::new(claim.clone(), term)).await? {
            Attempt::Busy(busy) => {
                let remaining = busy.remaining.map_or(term, |remaining| remaining.min(term));
                return self.busy(&claim, remaining, accept).await;
            }
            Attempt::Granted(_) => self.begin(&claim, term),
        }
        let acquired = self.lease(&claim, term, accept).await;
        if !matches!(acquired, Ok(Acquire::Lead { .. })) {
            self.give_up(claim).await;
        }
        acquired
    }

    /// Takes the store's lease, for the holder of the lock. A caller without the lock takes the
    /// lease for a moment to read the store ([`busy`](Self::busy)), so a busy lease is retried.
    async fn lease(
        &self,
        claim: &Claim,
        term: Duration,
        accept: Accept,
    ) -> Result<Acquire, StoreError> {
        for _ in 0..TRIES {
            match self.0.store.acquire(claim.clone(), term, accept).await {
                Ok(Acquire::Busy { .. }) => sleep(READ_PAUSE).await,
                acquired => return acquired,
            }
        }
        self.0.store.acquire(claim.clone(), term, accept).await
    }

    /// What the store has while another claim has the lock: an entry or a remembered failure, which
    /// answers the caller without the lock; or nothing, which is busy.
    async fn busy(
        &self,
        claim: &Claim,
        remaining: Duration,
        accept: Accept,
    ) -> Result<Acquire, StoreError> {
        let asking = Claim::new(claim.key().clone()).tagged(claim.tags().clone());
        match self.0.store.acquire(asking, READ_LEASE, accept).await? {
            Acquire::Lead { lease, stale, .. } => {
                self.0.store.abandon(lease.into_claim()).await?;
                let other = OtherLease::unknown();
                Ok(Acquire::Busy { other, remaining, stale, trace: None })
            }
            Acquire::Busy { other, stale, trace, .. } => {
                Ok(Acquire::Busy { other, remaining, stale, trace })
            }
            found_or_failed => Ok(found_or_failed),
        }
    }

    async fn renew_both(&self, lease: Lease, term: Duration) -> Result<Renew, StoreError> {
        let claim = lease.claim();
        let asked_at = Instant::now();
        let locked = self.0.lock.renew(claim, term);
        let (locked, leased) = join(locked, self.0.store.renew(&lease, term)).await;
        match (locked, leased) {
            (Ok(Renew::Held), Ok(Renew::Held)) => {
                self.prolong(claim, asked_at + term);
                Ok(Renew::Held)
            }
            // One half alone blocks other callers and proves nothing, so it is released too.
            (Ok(Renew::Lost), _) | (_, Ok(Renew::Lost)) => {
                self.give_up(claim.clone()).await;
                self.0.store.abandon(lease.into_claim()).await?;
                Ok(Renew::Lost)
            }
            (Err(error), _) => Err(error.into()),
            (_, Err(error)) => Err(error),
        }
    }

    fn prolong(&self, claim: &Claim, until: Instant) {
        let holds = self.holds();
        let of_key = holds.get(&claim.key().digest());
        let ours = of_key.into_iter().flatten().find(|it| it.claim.token() == claim.token());
        if let Some(hold) = ours {
            hold.ends.send_replace(until);
        }
    }

    /// Forgets the hold of a claim.
    fn forget(&self, claim: &Claim) {
        let digest = claim.key().digest();
        let mut holds = self.holds();
        let Some(of_key) = holds.get_mut(&digest) else { return };
        of_key.retain(|hold| hold.claim.token() != claim.token());
        if of_key.is_empty() {
            holds.remove(&digest);
        }
    }

    /// Remembers the hold of a claim, and releases it when its lease has ended.
    fn begin(&self, claim: &Claim, term: Duration) {
        let ends = watch::Sender::new(Instant::now() + term);
        let mut ending = ends.subscribe();
        self.forget(claim);
        let hold = GuardedHold { claim: claim.clone(), ends };
        self.holds().entry(claim.key().digest()).or_default().push(hold);
        let this = self.clone();
        let claim = claim.clone();
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            loop {
                let ends = *ending.borrow_and_update();
                tokio::select! {
                    biased;
                    changed = ending.changed() => if changed.is_err() { return },
                    () = sleep_until(ends) => break,
                }
            }
            this.give_up(claim).await;
        });
    }

    /// Releases the lock. When this is dropped, the release goes on in the background.
    async fn give_up(&self, claim: Claim) {
        self.forget(&claim);
        let key = claim.key().clone();
        let this = self.clone();
        let release = async move {
            for _ in 0..TRIES {
                match this.0.lock.release(claim.clone()).await {
                    Ok(_) => return,
                    Err(error) if error.is_transient() => {
                        warn_throttled!(target: "bellwether::lock", %key, %error, "the lock of a lease was not released");
                    }
                    Err(_) => return,
                }
                sleep(PAUSE).await;
            }
        };
        match Handle::try_current() {
            // An error says that the runtime ended first. Then nothing is left to do.
            Ok(runtime) => drop(runtime.spawn(release).await),
            Err(_) => release.await,
        }
    }

    /// Releases all that this process holds for a key.
    async fn give_up_all(&self, digest: Digest) {
        let held = self.holds().remove(&digest).unwrap_or_default();
        for hold in held {
            self.give_up(hold.claim).await;
        }
    }
}

impl<S: InProcessStore, L: Lock> InProcessStore for Guarded<S, L> {}

impl<S: Store, L: Lock> Store for Guarded<S, L> {
    fn peek(&self, key: &Key) -> Peek {
        self.0.store.peek(key)
    }

    fn watch(&self, key: &Key) -> Watch {
        self.0.store.watch(key).or(self.0.lock.watch(key))
    }

    fn lookup(&self, key: Key) -> StoreFuture<Option<Entry>> {
        self.0.store.lookup(key)
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        let this = self.clone();
        Box::pin(async move { this.lead(claim, term, accept).await })
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        let this = self.clone();
        let claim = lease.claim().clone();
        let lease = Lease::granted(claim, lease.term(), lease.fence(), lease.granted_at());
        Box::pin(async move { this.renew_both(lease, term).await })
    }

    fn commit(&self, lease: Lease, draft: Draft) -> StoreFuture<Commit> {
        let this = self.clone();
        Box::pin(async move {
            let claim = lease.claim().clone();
            let committed = this.0.store.commit(lease, draft).await;
            this.give_up(claim).await;
            committed
        })
    }

    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<()> {
        let this = self.clone();
        Box::pin(async move {
            let claim = lease.claim().clone();
            let failed = this.0.store.fail(lease, failure).await;
            this.give_up(claim).await;
            failed
        })
    }

    fn abandon(&self, claim: Claim) -> StoreFuture<()> {
        let this = self.clone();
        Box::pin(async move {
            let abandoned = this.0.store.abandon(claim.clone()).await;
            this.give_up(claim).await;
            abandoned
        })
    }

    fn invalidate(&self, key: Key) -> StoreFuture<bool> {
        let this = self.clone();
        Box::pin(async move {
            let digest = key.digest();
            let invalidated = this.0.store.invalidate(key).await;
            this.give_up_all(digest).await;
            invalidated
        })
    }

    fn expire(&self, key: Key) -> StoreFuture<bool> {
        let this = self.clone();
        Box::pin(async move {
            let digest = key.digest();
            let expired = this.0.store.expire(key).await;
            this.give_up_all(digest).await;
            expired
        })
    }

    fn lookup_tagged(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        self.0.store.lookup_tagged(key, tags)
    }

    fn invalidate_tag(&self, tag: Tag) -> StoreFuture<()> {
        self.0.store.invalidate_tag(tag)
    }

    fn expire_tag(&self, tag: Tag, spread: Duration) -> StoreFuture<()> {
        self.0.store.expire_tag(tag, spread)
    }
}

impl<S, L> Clone for Guarded<S, L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: fmt::Debug, L: fmt::Debug> fmt::Debug for Guarded<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded")
            .field("store", &self.0.store)
            .field("lock", &self.0.lock)
            .finish_non_exhaustive()
    }
}

/// How often a failing release is tried. After that, the lease or the session ends the hold.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// The lease of a caller that only reads the store: it gives the lease up at once.
const READ_LEASE: Duration = Duration::from_millis(100);

/// How long the holder of the lock waits for the end of a reader's lease.
const READ_PAUSE: Duration = Duration::from_millis(5);
