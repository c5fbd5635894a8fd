//! An `OutageStore` keeps the contract of stores with its primary, and without.

use std::time::Duration;

use bellwether::store::{
    Accept, Acquire, Change, ChangeTarget, Claim, End, Entry, Lease, OutageStore, Peek, Renew,
    Settled, Store, StoreErrorKind, StoreFuture, Tags, Watch,
};
use bellwether::{Key, MemoryStore};
use bellwether_test::conformance;
use bellwether_testkit::caches::MINUTE;

use super::OUTAGES;
use crate::support::store::{Faulty, local, remote};

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
        let store = Forgiving(OutageStore::new(primary, MINUTE));
        assert_eq!(conformance::run(store).await, [], "{kind:?}");
    }
}

/// A primary that only grants no leases gives no entries either, so the memory has to keep the contract.
#[tokio::test(start_paused = true)]
async fn it_keeps_the_contract_while_its_primary_loses_all_answers() {
    let primary = remote(&MemoryStore::new(10_000));
    primary.on_any().do_it_but_fail(StoreErrorKind::TimedOut);
    let store = Forgiving(OutageStore::new(primary, MINUTE));
    assert_eq!(conformance::run(store).await, []);
}

/// An invalidation gives the primary's error, which the suite takes for a fault. This store gives what it
/// has done to the memory.
#[derive(Debug)]
struct Forgiving(OutageStore<Faulty>);

impl Store for Forgiving {
    fn peek(&self, key: &Key) -> Peek {
        self.0.peek(key)
    }

    fn watch(&self, key: &Key) -> Watch {
        self.0.watch(key)
    }

    fn lookup(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        self.0.lookup(key, tags)
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        self.0.acquire(claim, term, accept)
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        self.0.renew(lease, term)
    }

    fn settle(&self, end: End) -> StoreFuture<Settled> {
        let is_abandon = matches!(end, End::Abandon(_));
        let settled = self.0.settle(end);
        // One that the memory does not know is one of the primary, perhaps.
        Box::pin(async move {
            settled.await.or_else(|error| if is_abandon { Ok(Settled::Done) } else { Err(error) })
        })
    }

    fn change(&self, target: ChangeTarget, change: Change) -> StoreFuture<bool> {
        let was_there = match &target {
            ChangeTarget::Key(key) => Some(self.0.lookup(key.clone(), Tags::none())),
            ChangeTarget::Tag(_) => None,
        };
        let changed = self.0.change(target, change);
        Box::pin(async move {
            let was_there = match was_there {
                Some(was_there) => was_there.await?.is_some(),
                None => false,
            };
            _ = changed.await.expect_err("the primary's error");
            Ok(was_there)
        })
    }
}
