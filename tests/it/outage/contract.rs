//! An `OutageStore` keeps the contract of stores with its primary, and without.

use std::time::Duration;

use bellwether::store::{
    Accept, Acquire, Claim, End, Entry, Lease, OutageStore, Peek, Renew, Settled, Store,
    StoreErrorKind, StoreFuture, Tags, Watch, Withdrawal, WithdrawalTarget,
};
use bellwether::{Key, MemoryStore};
use bellwether_test::suite::Violation;
use bellwether_test::{StoreExt as _, conformance};
use bellwether_testkit::caches::MINUTE;

use super::OUTAGES;
use crate::support::store::{AtMoment as _, Faulty, Moment, Operation, UNREACHABLE, local, remote};

#[tokio::test(start_paused = true)]
async fn it_keeps_the_contract_with_a_healthy_primary() {
    for place in [local, remote] {
        let store = OutageStore::new(place(&MemoryStore::new(10_000)), MINUTE);
        assert_eq!(conformance::run(store).await, []);
    }
}

#[tokio::test(start_paused = true)]
async fn it_keeps_the_contract_while_its_primary_fails_at_every_verb() {
    for kind in OUTAGES {
        let primary = remote(&MemoryStore::new(10));
        primary.on_any().fail(kind);
        let store = forgiving(primary);
        assert_eq!(conformance::run(store).await, [], "{kind:?}");
    }
}

/// What is stored on one side is not found on the other one. That is all: nothing older is found, and no
/// lease is granted twice.
#[tokio::test(start_paused = true)]
async fn while_its_primary_fails_at_one_verb_that_fails_or_less_is_found() {
    for verb in Operation::ALL.iter().copied() {
        for moment in [Moment::Before, Moment::After] {
            let primary = remote(&MemoryStore::new(10_000));
            primary.on(verb).fails(moment);
            let store = OutageStore::new(primary, MINUTE);
            for violation in conformance::run(store).await {
                let is_expected = match verb {
                    Operation::Lookup | Operation::Acquire => finds_less(&violation),
                    verb => violation.instead.starts_with(&format!("failed: {verb:?} was to fail")),
                };
                let is_unreported = violation.check == "watchers_are_told";
                assert!(is_expected || is_unreported, "{verb:?} {moment:?}: {violation}");
            }
        }
    }
}

fn finds_less(violation: &Violation) -> bool {
    let less = ["not found", "not there", "None instead of Some", "did not tell", "its own value"];
    less.iter().any(|less| violation.instead.contains(less))
}

#[tokio::test(start_paused = true)]
async fn it_keeps_the_contract_for_a_caller_that_repeats_what_its_primary_fails_at() {
    use Operation::{Abandon, Expire, ExpireTag, Invalidate, InvalidateTag};
    for verb in [Abandon, Invalidate, Expire, InvalidateTag, ExpireTag] {
        let primary = remote(&MemoryStore::new(10_000));
        primary.on(verb).every(2).fail(UNREACHABLE);
        let store = Caller { repeats: true, ..forgiving(primary) };
        assert_eq!(conformance::run(store).await, [], "{verb:?}");
    }
}

/// A primary that only grants no leases gives no entries either, so the memory has to keep the contract.
#[tokio::test(start_paused = true)]
async fn it_keeps_the_contract_while_its_primary_loses_all_answers() {
    let primary = remote(&MemoryStore::new(10_000));
    primary.on_any().do_it_but_fail(StoreErrorKind::TimedOut);
    let store = forgiving(primary);
    assert_eq!(conformance::run(store).await, []);
}

/// A caller of a store whose primary fails.
#[derive(Debug)]
struct Caller {
    store: OutageStore<Faulty>,
    /// Whether it repeats what has failed until that succeeds. If not, it gives what was done to the memory
    /// where the store gives the primary's error.
    repeats: bool,
}

fn forgiving(primary: Faulty) -> Caller {
    Caller { store: OutageStore::new(primary, MINUTE), repeats: false }
}

impl Store for Caller {
    fn peek(&self, key: &Key) -> Peek {
        self.store.peek(key)
    }

    fn watch(&self, key: &Key) -> Watch {
        self.store.watch(key)
    }

    fn lookup(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        self.store.lookup(key, tags)
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        self.store.acquire(claim, term, accept)
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        self.store.renew(lease, term)
    }

    fn settle(&self, end: End) -> StoreFuture<Settled> {
        let End::Abandon(claim) = end else { return self.store.settle(end) };
        let (store, repeats) = (self.store.clone(), self.repeats);
        Box::pin(async move {
            loop {
                match store.abandon(claim.clone()).await {
                    Err(_) if repeats => {}
                    // One that the memory does not know is one of the primary, perhaps.
                    _ => return Ok(Settled::Done),
                }
            }
        })
    }

    fn withdraw(&self, target: WithdrawalTarget, change: Withdrawal) -> StoreFuture<bool> {
        let (store, repeats) = (self.store.clone(), self.repeats);
        Box::pin(async move {
            let was_there = match &target {
                WithdrawalTarget::Key(key) => store.find(key.clone()).await?.is_some(),
                WithdrawalTarget::Tag(_) => false,
            };
            loop {
                match store.withdraw(target.clone(), change).await {
                    Err(_) if repeats => {}
                    Err(_) => return Ok(was_there),
                    changed => return changed,
                }
            }
        })
    }
}
