//! Unacknowledged claims: the reply to a command was lost, so a lease may be held by no flight.
//!
//! One command takes a lease, and another one gives it up. If the reply to either is lost, the
//! lease may still be there, and other processes wait for it. The store remembers such claims and
//! gives them up as soon as the server answers again. It does not wait for the next operation on
//! the same key, because there may be none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use bellwether::Digest;
use bellwether::StoreErrorKind;
use bellwether::adapter::millis;
use bellwether::store::Claim;

/// The claims that a store has to give up.
#[derive(Debug)]
pub(super) struct Unacknowledged {
    /// How long a command can be under way after it was sent.
    timeout: Duration,
    /// Held for a few operations, never across an `.await`.
    table: Mutex<PendingClaims>,
    /// Whether the table is empty. Then operations take no lock.
    is_empty: AtomicBool,
    /// The longest term that was requested, in milliseconds. No lease lasts longer.
    longest_term: AtomicU64,
    /// Whether a task gives up the claims in the table.
    has_task: AtomicBool,
}

#[derive(Debug, Default)]
struct PendingClaims {
    claims: HashMap<Digest, Vec<PendingClaim>>,
    count: usize,
}

/// A claim that may hold a lease.
#[derive(Clone, Debug)]
struct PendingClaim {
    claim: Claim,
    /// Until then, the server may still execute the command whose reply was lost.
    settled_at: Instant,
    /// From then on, its lease has lapsed.
    lapsed_at: Instant,
}

/// A command whose reply may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseCommand {
    /// Takes the lease.
    Take,
    /// Gives the lease up.
    Release,
}

impl LeaseCommand {
    /// Whether an operation that ended with such an error may have left a lease.
    pub(super) fn may_have_left_a_lease(self, kind: StoreErrorKind) -> bool {
        use StoreErrorKind::{Malformed, NotReady, TimedOut, Unreachable};
        match self {
            // A request that was lost with its connection may have been executed. When it was sent
            // again, the server may not have been ready.
            Self::Take => matches!(kind, TimedOut | Unreachable | Malformed | NotReady),
            // A release that was refused or not sent has not ended the lease.
            Self::Release => true,
        }
    }
}

impl Unacknowledged {
    /// An empty table, with the time that an operation waits for its reply.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            table: Mutex::default(),
            is_empty: AtomicBool::new(true),
            longest_term: AtomicU64::new(0),
            has_task: AtomicBool::new(false),
        }
    }

    /// Notes that a lease of this term is about to be requested.
    pub(super) fn note_term(&self, term: Duration) {
        let term = millis(term);
        if self.longest_term.load(Ordering::Relaxed) < term {
            self.longest_term.fetch_max(term, Ordering::Relaxed);
        }
    }

    /// The concatenated tokens of the claims of a key. Another claim of this process may take over
    /// a lease under one of them.
    pub(super) fn tokens(&self, digest: &Digest) -> Vec<u8> {
        if self.is_empty() {
            return Vec::new();
        }
        let table = self.table();
        let pending = table.claims.get(digest).into_iter().flatten();
        pending.flat_map(|pending| *pending.claim.token().as_bytes()).collect()
    }

    /// Removes a claim that is in use again.
    pub(super) fn forget(&self, claim: &Claim) {
        if !self.is_empty() {
            self.change(|table| {
                table.retain_of(&claim.key().digest(), |it| it.claim.token() != claim.token());
            });
        }
    }

    pub(super) fn add(&self, claim: Claim, now: Instant) {
        let term = Duration::from_millis(self.longest_term.load(Ordering::Relaxed));
        let settled_at = now + self.timeout;
        let pending = PendingClaim { claim, settled_at, lapsed_at: settled_at + term };
        self.change(|table| table.add(pending, now));
    }

    /// All claims.
    pub(super) fn claims(&self) -> Vec<Claim> {
        self.table().claims.values().flatten().map(|pending| pending.claim.clone()).collect()
    }

    /// Whether any claim may still hold a lease. Removes those whose lease has lapsed.
    pub(super) fn any_holds(&self, now: Instant) -> bool {
        self.change(|table| {
            table.retain(|pending| now < pending.lapsed_at);
            table.count > 0
        })
    }

    /// Removes claims that were given up by a command that was sent at this moment. Claims stay if
    /// their own command may be executed after it.
    pub(super) fn given_up(&self, claims: &[Claim], sent_at: Instant) {
        self.change(|table| {
            for claim in claims {
                table.retain_of(&claim.key().digest(), |pending| {
                    pending.claim.token() != claim.token() || sent_at < pending.settled_at
                });
            }
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Acquire)
    }

    /// Whether the caller has to start the task, which calls [`end_task`](Self::end_task) at its
    /// end.
    pub(super) fn begin_task(&self) -> bool {
        !self.has_task.swap(true, Ordering::AcqRel)
    }

    /// The task has ended.
    pub(super) fn end_task(&self) {
        self.has_task.store(false, Ordering::Release);
    }

    fn change<T>(&self, change: impl FnOnce(&mut PendingClaims) -> T) -> T {
        let mut table = self.table();
        let changed = change(&mut table);
        self.is_empty.store(table.count == 0, Ordering::Release);
        changed
    }

    fn table(&self) -> MutexGuard<'_, PendingClaims> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingClaims {
    fn add(&mut self, pending: PendingClaim, now: Instant) {
        if self.count >= MOST {
            self.retain(|pending| now < pending.lapsed_at);
        }
        let of_key = self.claims.entry(pending.claim.key().digest()).or_default();
        let known = of_key.iter_mut().find(|it| it.claim.token() == pending.claim.token());
        match known {
            Some(known) => *known = pending,
            // The table is full. The lease lapses by itself.
            None if self.count >= MOST => {}
            None => {
                of_key.push(pending);
                self.count += 1;
            }
        }
    }

    fn retain(&mut self, stays: impl Fn(&PendingClaim) -> bool) {
        self.claims.retain(|_, of_key| {
            of_key.retain(&stays);
            !of_key.is_empty()
        });
        self.count = self.claims.values().map(Vec::len).sum();
    }

    fn retain_of(&mut self, digest: &Digest, stays: impl Fn(&PendingClaim) -> bool) {
        let Some(of_key) = self.claims.get_mut(digest) else { return };
        let before = of_key.len();
        of_key.retain(stays);
        self.count -= before - of_key.len();
        if of_key.is_empty() {
            self.claims.remove(digest);
        }
    }
}

/// The maximum number of claims: as many as there can be flights, by default.
const MOST: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use bellwether::Key;

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
        let all = none();
        let now = Instant::now();
        let [one, same, other] = [claim(1), claim(1), claim(2)];
        for claim in [&one, &same, &other, &one] {
            all.add(claim.clone(), now);
        }
        assert_eq!([&one, &other, &claim(3)].map(|claim| tokens(&all, claim)), [2, 1, 0]);
        assert_eq!(all.claims().len(), 3);
    }

    #[test]
    fn a_claim_that_is_in_use_again_is_not_given_up() {
        let all = none();
        let now = Instant::now();
        let [one, same] = [claim(1), claim(1)];
        for claim in [&one, &same] {
            all.add(claim.clone(), now);
        }
        all.forget(&one);
        assert_eq!(all.tokens(&same.key().digest()), same.token().as_bytes());
    }

    #[test]
    fn a_claim_is_given_up_again_while_its_own_command_may_still_arrive() {
        let all = none();
        let now = Instant::now();
        all.add(claim(1), now);
        let claims = all.claims();
        all.given_up(&claims, now + TIMEOUT / 2);
        assert_eq!(all.claims().len(), 1);
        all.given_up(&claims, now + TIMEOUT);
        assert!(all.claims().is_empty() && all.is_empty.load(Ordering::Relaxed));
    }

    #[test]
    fn a_claim_is_remembered_until_its_lease_has_lapsed() {
        let all = none();
        let now = Instant::now();
        all.note_term(TERM * 60);
        all.note_term(TERM);
        all.add(claim(1), now);
        assert!(all.any_holds(now + TERM * 60));
        assert!(!all.any_holds(now + TIMEOUT + TERM * 60));
    }

    #[test]
    fn a_bounded_number_of_claims_is_remembered() {
        let all = none();
        let now = Instant::now();
        (0..MOST as u64 + 10).for_each(|sku| all.add(claim(sku), now));
        assert_eq!(all.claims().len(), MOST);
        // Lapsed claims are removed first.
        all.add(claim(0), now + TIMEOUT + TERM);
        assert_eq!(all.claims().len(), 1);
    }
}
