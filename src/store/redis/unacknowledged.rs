//! Claims that may hold a lease of which no flight knows: a command whose reply was lost.
//!
//! A lease is taken by one command and given up by another one. If the reply to either is lost, the
//! lease may be there, held by no flight, and other processes wait for it. The store remembers such
//! claims and gives them up as soon as the server answers again. It does not wait for the next
//! operation on the same key, as there may be none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::select;
use tokio::time::{Instant, sleep};

use super::Inner;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Digest;
use crate::store::Claim;

/// The claims of a store that are to be given up.
#[derive(Debug)]
pub(super) struct Unacknowledged {
    /// How long a command can be under way whose sender has stopped waiting for its reply.
    timeout: Duration,
    /// Held for a few operations on the table, never across an `.await`.
    table: Mutex<Table>,
    /// Whether the table is empty, for operations that take no lock then.
    is_empty: AtomicBool,
    /// The longest term that was asked for, in milliseconds: no lease lasts longer.
    longest_term: AtomicU64,
    /// Whether a task gives up what is in the table.
    is_tended: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    claims: HashMap<Digest, Vec<Pending>>,
    count: usize,
}

/// A claim that may hold a lease.
#[derive(Clone, Debug)]
struct Pending {
    claim: Claim,
    /// Until then, the command whose reply was lost can still be executed.
    settled_at: Instant,
    /// From then on, its lease has lapsed.
    lapsed_at: Instant,
}

/// What a command does whose reply may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    /// It takes the lease.
    ForLease,
    /// It gives the lease up.
    ForRelease,
}

impl Unacknowledged {
    /// None yet, with the time that an operation waits for its reply.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            table: Mutex::default(),
            is_empty: AtomicBool::new(true),
            longest_term: AtomicU64::new(0),
            is_tended: AtomicBool::new(false),
        }
    }

    /// Notes that a lease of this term is about to be asked for.
    pub(super) fn note_term(&self, term: Duration) {
        let millis = u64::try_from(term.as_millis()).unwrap_or(u64::MAX);
        if self.longest_term.load(Ordering::Relaxed) < millis {
            self.longest_term.fetch_max(millis, Ordering::Relaxed);
        }
    }

    /// The tokens of a key that are to be given up, one after the other. A lease under one of them
    /// is free for another claim of this process.
    pub(super) fn tokens(&self, digest: &Digest) -> Vec<u8> {
        if self.is_empty.load(Ordering::Acquire) {
            return Vec::new();
        }
        let table = self.table();
        let pending = table.claims.get(digest).into_iter().flatten();
        pending.flat_map(|pending| *pending.claim.token().as_bytes()).collect()
    }

    /// A claim is in use again.
    pub(super) fn forget(&self, claim: &Claim) {
        if !self.is_empty.load(Ordering::Acquire) {
            self.change(|table| {
                table.retain_of(&claim.key().digest(), |it| it.claim.token() != claim.token());
            });
        }
    }

    fn add(&self, claim: Claim, now: Instant) {
        let term = Duration::from_millis(self.longest_term.load(Ordering::Relaxed));
        let settled_at = now + self.timeout;
        let pending = Pending { claim, settled_at, lapsed_at: settled_at + term };
        self.change(|table| table.add(pending, now));
    }

    /// The claims that are to be given up.
    pub(super) fn claims(&self) -> Vec<Claim> {
        self.table().claims.values().flatten().map(|pending| pending.claim.clone()).collect()
    }

    /// Whether any may hold a lease now.
    fn any_holds(&self, now: Instant) -> bool {
        self.change(|table| {
            table.retain(|pending| now < pending.lapsed_at);
            table.count > 0
        })
    }

    /// Notes that claims were given up by a command that was sent at this moment. Those whose own
    /// command may come after it stay.
    pub(super) fn given_up(&self, claims: &[Claim], sent_at: Instant) {
        self.change(|table| {
            for claim in claims {
                table.retain_of(&claim.key().digest(), |pending| {
                    pending.claim.token() != claim.token() || sent_at < pending.settled_at
                });
            }
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table();
        let changed = change(&mut table);
        self.is_empty.store(table.count == 0, Ordering::Release);
        changed
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn add(&mut self, pending: Pending, now: Instant) {
        if self.count >= MOST {
            self.retain(|pending| now < pending.lapsed_at);
        }
        let of_key = self.claims.entry(pending.claim.key().digest()).or_default();
        let known = of_key.iter_mut().find(|it| it.claim.token() == pending.claim.token());
        match known {
            Some(known) => *known = pending,
            // What finds no room lapses by itself.
            None if self.count >= MOST => {}
            None => {
                of_key.push(pending);
                self.count += 1;
            }
        }
    }

    fn retain(&mut self, stays: impl Fn(&Pending) -> bool) {
        self.claims.retain(|_, of_key| {
            of_key.retain(&stays);
            !of_key.is_empty()
        });
        self.count = self.claims.values().map(Vec::len).sum();
    }

    fn retain_of(&mut self, digest: &Digest, stays: impl Fn(&Pending) -> bool) {
        let Some(of_key) = self.claims.get_mut(digest) else { return };
        let before = of_key.len();
        of_key.retain(stays);
        self.count -= before - of_key.len();
        if of_key.is_empty() {
            self.claims.remove(digest);
        }
    }
}

impl Inner {
    /// Does an operation on a claim. If its reply is lost, or if it is dropped before, the claim is
    /// given up once the server answers.
    pub(super) async fn acknowledged<T>(
        self: &Arc<Self>,
        asking: Asking,
        claim: &Claim,
        operation: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut reminder = Reminder { store: self, claim: Some(claim.clone()) };
        let answer = self.health.around(operation).await;
        if !answer.as_ref().is_err_and(|error| is_unacknowledged(asking, error.kind())) {
            reminder.claim = None;
        }
        answer
    }
}

/// Remembers a claim when it is dropped, unless the claim was taken out before.
struct Reminder<'a> {
    store: &'a Arc<Inner>,
    claim: Option<Claim>,
}

impl Drop for Reminder<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.store.unacknowledged.add(claim, Instant::now());
            tend(self.store);
        }
    }
}

/// Whether an operation that ended like this may have left a lease.
fn is_unacknowledged(asking: Asking, kind: StoreErrorKind) -> bool {
    use StoreErrorKind::{Malformed, NotReady, TimedOut, Unreachable};
    match asking {
        // One that was lost with its connection may have been executed before it was asked again,
        // and answered by a server that is not ready.
        Asking::ForLease => matches!(kind, TimedOut | Unreachable | Malformed | NotReady),
        // What was refused, or not asked, has ended nothing.
        Asking::ForRelease => true,
    }
}

/// A task that gives up claims. It is there while there are any.
struct Tending(Weak<Inner>);

/// Starts it, unless it is there or there is no runtime for it.
fn tend(store: &Arc<Inner>) {
    let Ok(runtime) = Handle::try_current() else { return };
    if !store.unacknowledged.is_tended.swap(true, Ordering::AcqRel) {
        runtime.spawn(Tending(Arc::downgrade(store)).run());
    }
}

impl Tending {
    async fn run(self) {
        self.give_up_all().await;
        let store = self.0.clone();
        drop(self);
        // More may have come while it ended.
        if let Some(store) = store.upgrade()
            && !store.unacknowledged.is_empty.load(Ordering::Acquire)
        {
            tend(&store);
        }
    }

    async fn give_up_all(&self) {
        while let Some(store) = self.0.upgrade() {
            if !store.unacknowledged.any_holds(Instant::now()) {
                return;
            }
            // Without traffic it is this that finds out whether the server is back.
            if let Err(error) = store.health.around(store.give_up_unacknowledged()).await {
                tracing::debug!(%error, "leases that no flight holds are not given up yet");
            }
            let is_back = store.health.is_back();
            drop(store);
            select! {
                () = is_back.notified() => {}
                () = sleep(AGAIN) => {}
            }
        }
    }
}

impl Drop for Tending {
    fn drop(&mut self) {
        if let Some(store) = self.0.upgrade() {
            store.unacknowledged.is_tended.store(false, Ordering::Release);
        }
    }
}

/// How long until they are given up once more, unless the server is back before: about as long as
/// others can bear to wait for a lease that no flight holds.
const AGAIN: Duration = Duration::from_millis(100);

/// How many claims are remembered: as many as there can be flights, by default.
const MOST: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    const TIMEOUT: Duration = Duration::from_millis(250);
    const TERM: Duration = Duration::from_secs(1);

    fn none() -> Unacknowledged {
        let none = Unacknowledged::new(TIMEOUT);
        none.note_term(TERM);
        none
    }

    fn claim(sku: u64) -> Claim {
        Claim::new(Key::of("item").with(sku))
    }

    fn tokens(of: &Unacknowledged, claim: &Claim) -> usize {
        of.tokens(&claim.key().digest()).len() / 16
    }

    #[test]
    fn only_the_claims_of_a_key_may_be_taken_over_for_it() {
        let (all, now) = (none(), Instant::now());
        let [one, same, other] = [claim(1), claim(1), claim(2)];
        for claim in [&one, &same, &other, &one] {
            all.add(claim.clone(), now);
        }
        assert_eq!([&one, &other, &claim(3)].map(|claim| tokens(&all, claim)), [2, 1, 0]);
        assert_eq!(all.claims().len(), 3);
    }

    #[test]
    fn a_claim_that_is_in_use_again_is_not_given_up() {
        let (all, now) = (none(), Instant::now());
        let [one, same] = [claim(1), claim(1)];
        for claim in [&one, &same] {
            all.add(claim.clone(), now);
        }
        all.forget(&one);
        assert_eq!(all.tokens(&same.key().digest()), same.token().as_bytes());
    }

    #[test]
    fn a_claim_is_given_up_again_while_its_own_command_may_still_arrive() {
        let (all, now) = (none(), Instant::now());
        all.add(claim(1), now);
        let claims = all.claims();
        all.given_up(&claims, now + TIMEOUT / 2);
        assert_eq!(all.claims().len(), 1);
        all.given_up(&claims, now + TIMEOUT);
        assert!(all.claims().is_empty() && all.is_empty.load(Ordering::Relaxed));
    }

    #[test]
    fn a_claim_is_remembered_until_its_lease_has_lapsed() {
        let (all, now) = (none(), Instant::now());
        all.note_term(TERM * 60);
        all.note_term(TERM);
        all.add(claim(1), now);
        assert!(all.any_holds(now + TERM * 60));
        assert!(!all.any_holds(now + TIMEOUT + TERM * 60));
    }

    #[test]
    fn a_bounded_number_of_claims_is_remembered() {
        let (all, now) = (none(), Instant::now());
        (0..MOST as u64 + 10).for_each(|sku| all.add(claim(sku), now));
        assert_eq!(all.claims().len(), MOST);
        // Those that have lapsed make room.
        all.add(claim(0), now + TIMEOUT + TERM);
        assert_eq!(all.claims().len(), 1);
    }
}
