//! Every store keeps the contract, and the suite notices one that does not.

use std::time::Duration;

use bellwether::store::{
    Accept, Acquire, Claim, Draft, End, Entry, Failure, Lease, Renew, Settled, Store, StoreFuture,
    Tags, Watch, Withdrawal, WithdrawalTarget,
};
use bellwether::{Key, MemoryStore, StoreError, Tag};
use bellwether_test::{StoreExt as _, conformance};
use bellwether_testkit::servers::{RedisServer, Reply};

use crate::catalog::options;

#[tokio::test]
async fn redis_store_keeps_the_contract() {
    let server = RedisServer::start();
    let store = options(&server).connect().await.expect("a store");
    assert!(store.stats().is_subscribed);
    assert_eq!(conformance::run(store).await, []);
}

#[tokio::test]
async fn redis_store_keeps_the_contract_over_resp2() {
    let server = RedisServer::start();
    let store = options(&server).resp2().connect().await.expect("a store");
    assert!(store.stats().is_subscribed);
    assert_eq!(conformance::run(store).await, []);
}

#[tokio::test]
async fn nothing_in_redis_lives_for_ever() {
    let server = RedisServer::start();
    let store = options(&server).connect().await.expect("a store");
    assert_eq!(conformance::run(store).await, []);
    let Reply::Array(names) = server.command(&["KEYS", "*"]) else { panic!("no list of names") };
    assert!(names.len() > 20, "the suite left only {names:?}");
    for name in names.into_iter().map(Reply::text) {
        let left = server.command(&["PTTL", &name]);
        assert_ne!(left, Reply::Integer(-1), "{name} lives for ever");
    }
}

/// A `MemoryStore` that breaks one promise.
#[derive(Clone, Debug)]
struct Broken {
    store: MemoryStore,
    promise: Promise,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Promise {
    AbandonFrees,
    CommitTellsSuperseded,
    CommitStores,
    ExpireKeepsStale,
    FailRemembers,
    GrantsOnce,
    InvalidateRemoves,
    InvalidateTells,
    LeasesAreToldApart,
    LookFinds,
    RenewProlongs,
    RenewTakesItsTerm,
    RenewTellsLost,
    TagExpiryKeepsStale,
    TagInvalidationRemoves,
    TagsAreCheckedAtCommit,
    WatchesItsKey,
}

impl Broken {
    fn breaks(&self, promise: Promise) -> bool {
        self.promise == promise
    }
}

impl Store for Broken {
    fn watch(&self, key: &Key) -> Watch {
        let other = Key::of("other");
        self.store.watch(if self.breaks(Promise::WatchesItsKey) { &other } else { key })
    }

    fn lookup(&self, key: Key, tags: Tags) -> StoreFuture<Option<Entry>> {
        if self.breaks(Promise::LookFinds) {
            return Box::pin(async { Ok(None) });
        }
        self.store.lookup(key, tags)
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        if self.breaks(Promise::GrantsOnce) {
            let lease = Lease::granted(claim, term, 1, 1, Vec::new());
            return Box::pin(async {
                Ok(Acquire::Lead { lease, stale: None, failures: 0, probe: None })
            });
        }
        self.store.acquire(claim, term, accept)
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        if self.breaks(Promise::RenewProlongs) {
            return Box::pin(async { Ok(Renew::Held) });
        }
        let forgets = self.breaks(Promise::RenewTakesItsTerm);
        let renewed = self.store.renew(lease, if forgets { lease.term } else { term });
        let lies = self.breaks(Promise::RenewTellsLost);
        Box::pin(async move { Ok(if lies { Renew::Held } else { renewed.await? }) })
    }

    fn settle(&self, end: End) -> StoreFuture<Settled> {
        match end {
            End::Commit(lease, draft) => self.commit(lease, draft),
            End::Fail(lease, failure) => done(self.fail(lease, failure)),
            End::Abandon(claim) => done(self.abandon(claim)),
        }
    }

    fn withdraw(&self, target: WithdrawalTarget, change: Withdrawal) -> StoreFuture<bool> {
        match (target, change) {
            (WithdrawalTarget::Key(key), Withdrawal::Invalidate) => self.invalidate(key),
            (WithdrawalTarget::Key(key), Withdrawal::Expire { .. }) => self.expire(key),
            (WithdrawalTarget::Tag(tag), Withdrawal::Invalidate) => {
                not_there(self.invalidate_tag(tag))
            }
            (WithdrawalTarget::Tag(tag), Withdrawal::Expire { over }) => {
                not_there(self.expire_tag(tag, over))
            }
        }
    }
}

impl Broken {
    fn commit(&self, lease: Lease, draft: Draft) -> StoreFuture<Settled> {
        if self.breaks(Promise::CommitStores) {
            let abandoned = self.store.abandon(lease.claim);
            return Box::pin(async { abandoned.await.map(|()| Settled::Done) });
        }
        if self.breaks(Promise::TagsAreCheckedAtCommit) && !lease.epochs.is_empty() {
            // As if the load had begun only now.
            let claim = lease.claim.clone();
            let store = self.store.clone();
            return Box::pin(async move {
                store.abandon(claim.clone()).await?;
                match store.acquire(claim, lease.term, Accept::Nothing).await? {
                    Acquire::Lead { lease, .. } => store.commit(lease, draft).await,
                    _ => Ok(Settled::Superseded),
                }
            });
        }
        let store = self.store.clone();
        let is_by_token = self.breaks(Promise::LeasesAreToldApart);
        let committed = async move {
            let lease = if is_by_token { current(&store, lease).await? } else { lease };
            store.commit(lease, draft).await
        };
        let lies = self.breaks(Promise::CommitTellsSuperseded);
        Box::pin(async move {
            let committed = committed.await?;
            Ok(if lies { Settled::Done } else { committed })
        })
    }

    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<()> {
        if self.breaks(Promise::FailRemembers) {
            return self.store.abandon(lease.claim);
        }
        if self.breaks(Promise::LeasesAreToldApart) {
            let store = self.store.clone();
            return Box::pin(async move {
                let lease = current(&store, lease).await?;
                store.fail(lease, failure).await
            });
        }
        self.store.fail(lease, failure)
    }

    fn abandon(&self, claim: Claim) -> StoreFuture<()> {
        if self.breaks(Promise::AbandonFrees) {
            return Box::pin(async { Ok(()) });
        }
        self.store.abandon(claim)
    }

    fn invalidate(&self, key: Key) -> StoreFuture<bool> {
        if self.breaks(Promise::InvalidateRemoves) {
            return Box::pin(async { Ok(true) });
        }
        if self.breaks(Promise::InvalidateTells) {
            let invalidated = self.store.invalidate(key);
            return Box::pin(async { invalidated.await.map(|_| true) });
        }
        self.store.invalidate(key)
    }

    fn expire(&self, key: Key) -> StoreFuture<bool> {
        if self.breaks(Promise::ExpireKeepsStale) {
            return self.store.invalidate(key);
        }
        self.store.expire(key)
    }

    fn invalidate_tag(&self, tag: Tag) -> StoreFuture<()> {
        if self.breaks(Promise::TagInvalidationRemoves) {
            return self.store.expire_tag(tag, Duration::ZERO);
        }
        self.store.invalidate_tag(tag)
    }

    fn expire_tag(&self, tag: Tag, spread: Duration) -> StoreFuture<()> {
        if self.breaks(Promise::TagExpiryKeepsStale) {
            return self.store.invalidate_tag(tag);
        }
        self.store.expire_tag(tag, spread)
    }
}

fn done(answer: StoreFuture<()>) -> StoreFuture<Settled> {
    Box::pin(async { answer.await.map(|()| Settled::Done) })
}

fn not_there(answer: StoreFuture<()>) -> StoreFuture<bool> {
    Box::pin(async { answer.await.map(|()| false) })
}

/// The lease that the token of this one has by now.
async fn current(store: &MemoryStore, lease: Lease) -> Result<Lease, StoreError> {
    let claim = lease.claim.clone();
    match store.acquire(claim, lease.term, Accept::Nothing).await? {
        Acquire::Lead { lease: current, .. } => Ok(current),
        _ => Ok(lease),
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_breaks_a_promise_is_found_out() {
    let table = [
        (Promise::AbandonFrees, "an_abandoned_lease_is_free"),
        (Promise::CommitTellsSuperseded, "a_late_commit_does_not_replace_a_newer_entry"),
        (Promise::CommitStores, "what_was_committed_is_found"),
        (Promise::ExpireKeepsStale, "expiring_keeps_the_entry_as_stale"),
        (Promise::FailRemembers, "a_failure_is_told_to_every_caller"),
        (Promise::GrantsOnce, "of_many_concurrent_claims_one_leads"),
        (Promise::InvalidateRemoves, "an_invalidation_removes_the_entry"),
        (Promise::InvalidateTells, "an_invalidation_tells_whether_there_was_an_entry"),
        (Promise::LeasesAreToldApart, "a_claim_that_asks_again_does_not_revive_a_lease"),
        (Promise::LeasesAreToldApart, "a_load_from_before_an_invalidation_cannot_fail"),
        (Promise::LookFinds, "an_entry_runs_out"),
        (Promise::RenewProlongs, "a_renewed_lease_does_not_lapse"),
        (Promise::RenewTakesItsTerm, "a_renewed_lease_holds_for_the_term_of_its_renewal"),
        (Promise::RenewTellsLost, "a_lapsed_lease_is_not_renewed"),
        (Promise::TagExpiryKeepsStale, "expiring_a_tag_keeps_its_entries_as_stale"),
        (Promise::TagInvalidationRemoves, "an_invalidated_tag_removes_its_entries"),
        (Promise::TagsAreCheckedAtCommit, "an_invalidated_tag_refuses_loads_that_began_before_it"),
        (Promise::WatchesItsKey, "watchers_are_told"),
    ];
    for (promise, check) in table {
        let store = MemoryStore::new(10_000);
        let violations = conformance::run(Broken { store, promise }).await;
        assert!(violations.iter().any(|found| found.check == check), "{promise:?}: {violations:?}");
    }
}
