//! `Guarded`: a store whose leases take a lock as well.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::adapter::warn_throttled;
use bellwether::store::{
    Accept, Acquire, Commit, Draft, Entry, Failure, Lease, Peek, Renew, StoreFuture, Watch,
};
use bellwether::{Digest, Key, Store, StoreError};
use futures_util::future::join;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::error::may_pass;
use super::{Attempt, Claim, Lock, Request};

/// A store whose entries are in one system, and whose leases take a lock of another.
///
/// Whoever is to load a key needs the lock first, and then the store's own lease, both by one claim.
/// So a key is led by one at a time as long as **either** system keeps its word: a Redis that lost
/// an acknowledged lease in a failover does not start a second load while ZooKeeper, say, still
/// knows the first.
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
/// Fences, floors and the memory of failures are those of the store, in the one step in which it
/// stores. A holder that has lost the lock, or the lease, or both, and does not know it, is refused
/// as it is without a lock: by the fence of the entry that came after it, and by the floor of an
/// invalidation. Nothing about that depends on the lock, so a lock without fences will do.
///
/// # What is weaker than the store alone
/// - A miss costs two round trips, one after the other, and so does the end of a load. Hits cost
///   what they cost without a lock.
/// - Both systems have to be there. If either is not, acquiring fails, and it is as
///   [`WhenStoreFails`](bellwether::WhenStoreFails) says.
/// - An invalidation ends the store's half of a lease at once, and the lock's at once too if the
///   lease was granted in this process. Of another process it is given up with the next renewal, a
///   third of the lease later; until then nobody else leads. What is loaded by then is refused by
///   the floor, as ever.
/// - A process that dies keeps a key from the others until both halves have ended: the longer of the
///   lease and the session.
///
/// A lock by sessions does not end with a lease. Here it is given up when the lease has ended without
/// being renewed.
pub struct Guarded<S, L>(Arc<Inner<S, L>>);

struct Inner<S, L> {
    store: S,
    lock: L,
    /// Guards what this process holds of the lock: held for a map operation, never across an
    /// `.await`.
    tenures: Mutex<HashMap<Digest, Vec<Tenure>>>,
}

/// One hold of the lock, for one lease.
struct Tenure {
    claim: Claim,
    /// When the lease ends, if it is not renewed. Dropped with this, which ends the task that waits
    /// for it.
    ends: watch::Sender<Instant>,
}

impl<S: Store, L: Lock> Guarded<S, L> {
    /// This store, with leases that take this lock. The lock's keys must not be used for anything
    /// else.
    pub fn new(store: S, lock: L) -> Self {
        Self(Arc::new(Inner { store, lock, tenures: Mutex::default() }))
    }

    /// How many leases of this process hold the lock.
    pub fn leases(&self) -> usize {
        self.tenures().values().map(Vec::len).sum()
    }

    fn tenures(&self) -> MutexGuard<'_, HashMap<Digest, Vec<Tenure>>> {
        // A table whose holder panicked is still whole: no user code runs under the lock.
        self.0.tenures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Both halves, or what is in the way.
    async fn lead(
        &self,
        claim: Claim,
        term: Duration,
        accept: Accept,
    ) -> Result<Acquire, StoreError> {
        match self.0.lock.acquire(Request::new(claim.clone(), term)).await? {
            Attempt::Busy(busy) => {
                let remaining = busy.remaining.map_or(term, |remaining| remaining.min(term));
                return self.busy(claim.key(), remaining, accept).await;
            }
            Attempt::Granted(_) => self.begin(&claim, term),
        }
        let acquired = self.lease(&claim, term, accept).await;
        if !matches!(acquired, Ok(Acquire::Lead { .. })) {
            self.give_up(claim).await;
        }
        acquired
    }

    /// The store's half, for the holder of the lock. A caller without the lock has the lease for a
    /// moment while it asks what there is ([`busy`](Self::busy)), and that is waited out.
    async fn lease(
        &self,
        claim: &Claim,
        term: Duration,
        accept: Accept,
    ) -> Result<Acquire, StoreError> {
        for _ in 0..TRIES {
            match self.0.store.acquire(claim.clone(), term, accept).await {
                Ok(Acquire::Busy { .. }) => sleep(A_MOMENT).await,
                acquired => return acquired,
            }
        }
        self.0.store.acquire(claim.clone(), term, accept).await
    }

    /// What the store says while another claim has the lock: whether there is something that makes
    /// that of no matter, or a failure that the holder is about to try again.
    async fn busy(
        &self,
        key: &Key,
        remaining: Duration,
        accept: Accept,
    ) -> Result<Acquire, StoreError> {
        let asking = Claim::new(key.clone());
        match self.0.store.acquire(asking, A_LEASE, accept).await? {
            Acquire::Lead { lease, stale, .. } => {
                self.0.store.abandon(lease.into_claim()).await?;
                Ok(Acquire::Busy { remaining, stale })
            }
            Acquire::Busy { stale, .. } => Ok(Acquire::Busy { remaining, stale }),
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
            // Half of it keeps others away and gives no right: it is given up too.
            (Ok(Renew::Lost), _) | (_, Ok(Renew::Lost)) => {
                self.give_up(claim.clone()).await;
                self.0.store.abandon(lease.into_claim()).await?;
                Ok(Renew::Lost)
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    fn prolong(&self, claim: &Claim, until: Instant) {
        let tenures = self.tenures();
        let of_key = tenures.get(&claim.key().digest());
        let ours = of_key.into_iter().flatten().find(|it| it.claim.token() == claim.token());
        if let Some(tenure) = ours {
            tenure.ends.send_replace(until);
        }
    }

    /// Forgets what is held by a claim.
    fn forget(&self, claim: &Claim) {
        let digest = claim.key().digest();
        let mut tenures = self.tenures();
        let Some(of_key) = tenures.get_mut(&digest) else { return };
        of_key.retain(|tenure| tenure.claim.token() != claim.token());
        if of_key.is_empty() {
            tenures.remove(&digest);
        }
    }

    /// Remembers what is held, and sees to its end.
    fn begin(&self, claim: &Claim, term: Duration) {
        let ends = watch::Sender::new(Instant::now() + term);
        let mut ending = ends.subscribe();
        self.forget(claim);
        let tenure = Tenure { claim: claim.clone(), ends };
        self.tenures().entry(claim.key().digest()).or_default().push(tenure);
        let (this, claim) = (self.clone(), claim.clone());
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

    /// Gives up the lock, and goes on with it when this is dropped.
    async fn give_up(&self, claim: Claim) {
        self.forget(&claim);
        let key = claim.key().clone();
        let this = self.clone();
        let release = async move {
            for _ in 0..TRIES {
                match this.0.lock.release(claim.clone()).await {
                    Ok(_) => return,
                    Err(error) if may_pass(&error) => {
                        warn_throttled!(%key, %error, "the lock of a lease was not released");
                    }
                    Err(_) => return,
                }
                sleep(PAUSE).await;
            }
        };
        match Handle::try_current() {
            // Whether it was done or the runtime ends first: there is nothing left to do.
            Ok(runtime) => drop(runtime.spawn(release).await),
            Err(_) => release.await,
        }
    }

    /// Gives up what this process holds for a key.
    async fn give_up_all(&self, digest: Digest) {
        let held = self.tenures().remove(&digest).unwrap_or_default();
        for tenure in held {
            self.give_up(tenure.claim).await;
        }
    }
}

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

    fn invalidate(&self, key: Key) -> StoreFuture<()> {
        let this = self.clone();
        Box::pin(async move {
            let digest = key.digest();
            let invalidated = this.0.store.invalidate(key).await;
            this.give_up_all(digest).await;
            invalidated
        })
    }

    fn expire(&self, key: Key) -> StoreFuture<()> {
        let this = self.clone();
        Box::pin(async move {
            let digest = key.digest();
            let expired = this.0.store.expire(key).await;
            this.give_up_all(digest).await;
            expired
        })
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

/// How often a release is tried that fails: a lease ends by itself, and a session with its process.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// The lease of a caller that gives it up at once, should it be lost.
const A_LEASE: Duration = Duration::from_millis(100);

/// How long the holder of the lock waits for such a lease to go.
const A_MOMENT: Duration = Duration::from_millis(5);
