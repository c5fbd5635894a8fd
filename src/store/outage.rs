//! `OutageStore`: a store that answers from the memory of the process while its primary does not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::{
    Accept, Acquire, Claim, Draft, End, Entry, Lease, MemoryOptions, Peek, Renew, Settled, Store,
    StoreErrorKind, StoreFuture, Watch, Withdrawal, WithdrawalTarget,
};
use crate::duration::micros;
use crate::error::StoreError;
use crate::key::Key;
use crate::locked::locked;
use crate::stats::OutageStats;
use crate::store::memory::MemoryStore;
use crate::tag::Tags;

/// A store, and the memory of this process for the time in which that store (the primary) does not answer.
/// So an outage leaves each process a cache of its own.
///
/// - **The primary's answers count.** Each lookup and each acquire asks it first. One that fails is
///   answered from the memory. After a lookup that failed, an acquire of that key within a tenth of a
///   second does not ask the primary again, so a caller waits for one failure.
/// - **The memory grants leases.** Such a [`Lease`] says [why](Lease::outage). So a process loads each key
///   once, and keeps values, "not found" answers, failures, tags and stale lifetimes.
/// - **What it keeps is fresh for a short time**, one second by default: this process does not learn what
///   others invalidate meanwhile. The stale lifetimes begin where that ends. [What says where answers
///   are](crate::Lifetimes::fresh_in_outages) keeps its ttl.
/// - **An invalidation by this process** is at once one of the memory, also if the primary fails.
/// - **The memory does not come back:** as soon as the primary gives an entry of a key or its lease, the
///   entry and the lease of that key in the memory end. None of them is ever written to the primary.
/// - **When the primary is back** and has not failed for twice that time, the memory is freed.
///
/// It keeps 64 MiB at most. A lease that the primary has granted although its answer was lost ends by
/// itself, unless the primary gives it up, as a `RedisStore` does.
///
/// A handle: clones share the memory. A `RedisStore` has one inside.
///
/// ```
/// use std::time::Duration;
///
/// use bellwether::MemoryStore;
/// use bellwether::store::OutageStore;
///
/// # type MyRemoteStore = MemoryStore;
/// let store = OutageStore::new(MyRemoteStore::new(10_000), Duration::from_secs(1));
/// assert_eq!(store.stats().entries, 0);
/// ```
pub struct OutageStore<S>(Arc<Inner<S>>);

struct Inner<S> {
    primary: S,
    /// How long an entry of `local` is fresh at most. Zero: it is never used.
    ttl: Duration,
    local: MemoryStore,
    health: PrimaryHealth,
    copies: Box<Copies>,
    hits: AtomicU64,
}

type Copies = dyn Fn(&Key) -> Option<Entry> + Send + Sync;

impl<S: Store> OutageStore<S> {
    /// A store over this one. Without it, entries are fresh for `ttl` at most; with zero, nothing is kept
    /// and the primary's errors are given.
    pub fn new(primary: S, ttl: Duration) -> Self {
        Self::with_copies(primary, ttl, |_| None)
    }

    /// As [`new`](Self::new), over a primary that leaves copies of entries in this process: what the
    /// memory has no entry of is answered by its [unwatched](Entry::unwatched) copy.
    pub fn with_copies(
        primary: S,
        ttl: Duration,
        copies: impl Fn(&Key) -> Option<Entry> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            primary,
            ttl,
            local: MemoryStore::new(MemoryOptions::new(MOST_ENTRIES)),
            health: PrimaryHealth::default(),
            copies: Box::new(copies),
            hits: AtomicU64::new(0),
        }))
    }

    /// The primary, whose errors are its own.
    pub fn primary(&self) -> &S {
        &self.0.primary
    }

    /// What it keeps, and what that has answered.
    pub fn stats(&self) -> OutageStats {
        let entries = self.0.local.stats().entries;
        OutageStats { entries, hits: self.0.hits.load(Ordering::Relaxed) }
    }

    /// What a [`lookup`](Store::lookup) gives whose primary answers so. A primary that looks up without a copy
    /// of the key saves that and a box for each hit.
    ///
    /// # Errors
    /// Those of the primary that are no outage.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer.
    pub async fn lookup_after(
        &self,
        key: &Key,
        tags: &Tags,
        asked: impl Future<Output = Result<Option<Entry>, StoreError>>,
    ) -> Result<Option<Entry>, StoreError> {
        match asked.await {
            Ok(found) => {
                self.0.answered(key, found.is_some());
                Ok(found)
            }
            Err(error) if self.0.stands_in(&error) => {
                self.0.health.failed(key, error);
                self.0.look_up_locally(key.clone(), tags.clone()).await
            }
            Err(error) => Err(error),
        }
    }
}

impl<S: Store> Inner<S> {
    /// Whether the memory answers after this failure: if the primary cannot answer, or refuses to. What else
    /// fails would fail without it as well.
    fn stands_in(&self, error: &StoreError) -> bool {
        let is_outage =
            !matches!(error.kind(), StoreErrorKind::Malformed | StoreErrorKind::Unsupported);
        is_outage && !self.ttl.is_zero()
    }

    /// The primary has answered. If it gave an entry or a lease of a key, the memory's of that key end.
    fn answered(&self, key: &Key, gave: bool) {
        if self.health.is_spotless() {
            return;
        }
        if gave {
            self.local.invalidate(key);
        }
        self.health.answered(self.ttl * 2, || self.local.clear());
    }

    async fn look_up_locally(&self, key: Key, tags: Tags) -> Result<Option<Entry>, StoreError> {
        let found = self.local.lookup(key.clone(), tags.clone()).await?;
        self.count(found.as_ref());
        Ok(found.or_else(|| self.copy(&key, &tags)))
    }

    async fn acquire_locally(
        &self,
        claim: Claim,
        term: Duration,
        accept: Accept,
        why: StoreError,
    ) -> Result<Acquire, StoreError> {
        let mut acquired = self.local.acquire(claim.clone(), term, accept).await?;
        match &mut acquired {
            Acquire::Found(entry) => self.count(Some(entry)),
            Acquire::Busy { stale, .. } | Acquire::Failed { stale, .. } => self.fill(stale, &claim),
            Acquire::Lead { lease, stale, .. } => {
                lease.outage = Some(why);
                self.fill(stale, &claim);
                // A copy that is fresh in outages.
                if let Some(fresh) = stale.take_if(|copy| copy.is_fresh() && accept.admits(copy)) {
                    self.local.release(&claim);
                    return Ok(Acquire::Found(fresh));
                }
            }
        }
        Ok(acquired)
    }

    fn fill(&self, stale: &mut Option<Entry>, claim: &Claim) {
        if stale.is_none() {
            *stale = self.copy(claim.key(), claim.tags());
        }
    }

    fn copy(&self, key: &Key, tags: &Tags) -> Option<Entry> {
        (self.copies)(key).filter(|copy| copy.has_tags(tags))
    }

    fn count(&self, found: Option<&Entry>) {
        if found.is_some_and(Entry::is_fresh) {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Without an earlier failure, the memory has neither an entry nor a lease.
    async fn change_locally(&self, target: &WithdrawalTarget, change: Withdrawal) {
        if !self.health.is_spotless() {
            _ = self.local.withdraw(target.clone(), change).await;
        }
    }
}

impl<S: Store> Store for OutageStore<S> {
    fn peek(&self, key: &Key) -> Peek {
        let Inner { primary, health, local, .. } = &*self.0;
        match primary.peek(key) {
            Peek::Unknown if health.is_failing() => match local.peek(key) {
                Peek::Found(entry) if entry.is_fresh() => {
                    self.0.count(Some(&entry));
                    Peek::Found(entry)
                }
                _ => Peek::Unknown,
            },
            known => known,
        }
    }

    fn watch(&self, key: &Key) -> Watch {
        self.0.primary.watch(key).beside(self.0.local.watch(key))
    }

    fn lookup(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        let store = self.clone();
        Box::pin(async move {
            let asked = store.0.primary.lookup(key.clone(), tags.clone());
            store.lookup_after(&key, &tags, asked).await
        })
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            if let Some(error) = store.health.just_failed(claim.key()) {
                return store.acquire_locally(claim, term, accept, error).await;
            }
            match store.primary.acquire(claim.clone(), term, accept).await {
                Ok(acquired) => {
                    store.answered(claim.key(), gives(&acquired));
                    Ok(acquired)
                }
                Err(error) if store.stands_in(&error) => {
                    store.health.failed(claim.key(), error.clone());
                    store.acquire_locally(claim, term, accept, error).await
                }
                Err(error) => Err(error),
            }
        })
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        match lease.outage {
            Some(_) => self.0.local.renew(lease, term),
            None => self.0.primary.renew(lease, term),
        }
    }

    fn settle(&self, end: End) -> StoreFuture<Settled> {
        let Inner { primary, local, ttl, health, .. } = &*self.0;
        match end {
            End::Commit(lease, draft) if lease.outage.is_some() => {
                let lifetimes = draft.lifetimes.capped(*ttl);
                local.settle(End::Commit(lease, Draft { lifetimes, ..draft }))
            }
            End::Fail(lease, failure) if lease.outage.is_some() => {
                local.settle(End::Fail(lease, failure))
            }
            End::Abandon(claim) if !health.is_spotless() => {
                let store = Arc::clone(&self.0);
                Box::pin(async move {
                    match store.local.release(&claim) {
                        true => Ok(Settled::Done),
                        false => store.primary.settle(End::Abandon(claim)).await,
                    }
                })
            }
            end => primary.settle(end),
        }
    }

    fn withdraw(&self, target: WithdrawalTarget, change: Withdrawal) -> StoreFuture<bool> {
        let asked = self.0.primary.withdraw(target.clone(), change);
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            store.change_locally(&target, change).await;
            let changed = asked.await;
            // A load may have begun meanwhile, without the primary for the first time.
            store.change_locally(&target, change).await;
            changed
        })
    }
}

impl<S> Clone for OutageStore<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

crate::debug_fields! { OutageStore<S> where S: Debug => |it|
    primary = it.0.primary, ttl = it.0.ttl, local = it.0.local, health = it.0.health
}

/// Whether an answer of the primary has its entry or its lease.
fn gives(acquired: &Acquire) -> bool {
    match acquired {
        Acquire::Found(_) | Acquire::Lead { .. } => true,
        Acquire::Busy { stale, .. } | Acquire::Failed { stale, .. } => stale.is_some(),
    }
}

/// So many that the bytes are the bound, unless entries are tiny.
const MOST_ENTRIES: usize = 65_536;

/// When a primary has last failed, and whether it has answered since.
#[derive(Debug)]
struct PrimaryHealth {
    born: Instant,
    /// Twice the time of the last failure, in us and counted from 1 us before `born`; and one more until the
    /// primary answers. Zero: there was none, or it was so long ago that the memory was freed.
    failed: AtomicU64,
    /// The last failure, and of which key. Held to read or to write it, never across an `.await`.
    last: Mutex<Option<(Key, StoreError)>>,
}

impl Default for PrimaryHealth {
    fn default() -> Self {
        Self { born: Instant::now(), failed: AtomicU64::new(SPOTLESS), last: Mutex::default() }
    }
}

impl PrimaryHealth {
    /// Whether there was no failure for which the memory is still in use.
    #[inline]
    fn is_spotless(&self) -> bool {
        self.failed.load(Ordering::Acquire) == SPOTLESS
    }

    /// Notes a failure of a request for a key. Call it before the memory grants a lease because of that.
    fn failed(&self, key: &Key, error: StoreError) {
        // A full server refuses leases only, and answers lookups.
        let is_failing = error.kind() != StoreErrorKind::Refused;
        *locked(&self.last) = Some((key.clone(), error));
        self.failed.store(self.now() * 2 + u64::from(is_failing), Ordering::Release);
    }

    /// Notes an answer. Frees the memory if there was no failure for `quiet`.
    fn answered(&self, quiet: Duration, free: impl FnOnce()) {
        let failed = self.failed.load(Ordering::Acquire);
        let mut next = failed & !FAILING;
        if self.since(failed) > quiet {
            // First: the primary's later answers do not end what is in the memory any more.
            free();
            next = SPOTLESS;
        }
        if next != failed {
            // Unless it has failed meanwhile.
            let (order, otherwise) = (Ordering::AcqRel, Ordering::Relaxed);
            _ = self.failed.compare_exchange(failed, next, order, otherwise);
        }
    }

    /// Whether it fails, and was asked so shortly ago that it need not be asked now.
    #[inline]
    fn is_failing(&self) -> bool {
        self.has_failed_within(ASKED_EVERY)
    }

    /// The failure of a moment ago of a request for this key, unless it has answered since. Of this key
    /// only: one lost request in a crowd says nothing about the other keys.
    fn just_failed(&self, key: &Key) -> Option<StoreError> {
        if !self.has_failed_within(JUST) {
            return None;
        }
        let last = locked(&self.last).clone();
        last.filter(|(of, _)| of == key).map(|(_, error)| error)
    }

    #[inline]
    fn has_failed_within(&self, time: Duration) -> bool {
        let failed = self.failed.load(Ordering::Acquire);
        failed & FAILING != 0 && self.since(failed) < time
    }

    fn since(&self, failed: u64) -> Duration {
        Duration::from_micros(self.now().saturating_sub(failed / 2))
    }

    fn now(&self) -> u64 {
        micros(self.born.elapsed()) + 1
    }
}

const SPOTLESS: u64 = 0;

const FAILING: u64 = 1;

/// How often a process whose memory has the answers asks the primary: as often as a breaker that is open
/// asks the server.
const ASKED_EVERY: Duration = Duration::from_millis(250);

/// Longer than a caller takes from its lookup to its acquire.
const JUST: Duration = Duration::from_millis(100);
