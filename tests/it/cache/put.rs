//! `put`: a value that was just written, and what it races against.

use std::sync::Arc;
use std::time::Duration;

use bellwether::codec::Cacheability;
use bellwether::store::{
    Accept, Acquire, Claim, End, Entry, Lease, Renew, Settled, Store, StoreFuture, Tags,
    Withdrawal, WithdrawalTarget,
};
use bellwether::{Cache, CacheErrorKind, Key, MemoryStore};
use bellwether_test::StoreExt as _;
use bellwether_testkit::caches::promises::{
    an_invalidated_tag_outdates_a_put, waiters_get_what_was_put,
};
use bellwether_testkit::caches::{MINUTE, lease};
use bellwether_testkit::loaders::{End as LoadEnd, Loader};

use super::{ask, asked, builder, cache, ended};
use crate::support::store::{AtMoment, Moment, Operation, local, processes};

#[tokio::test(start_paused = true)]
async fn the_next_caller_gets_what_was_put() {
    let loader = Loader::new();
    let cache = cache(MemoryStore::new(10));
    asked(&cache, 1, &loader).await.0.unwrap();
    assert!(cache.put(1, 42).await.unwrap());
    assert_eq!(asked(&cache, 1, &loader).await.0.unwrap(), 42);
    assert_eq!(loader.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_load_from_before_a_put_does_not_replace_it() {
    let loader = Loader::gated();
    let store = MemoryStore::new(10);
    let cache = cache(store.clone());
    let before = ask(&cache, 1, &loader);
    loader.has_begun(1).await;
    assert!(cache.put(1, 42).await.unwrap());
    loader.let_go(1);
    assert_eq!(ended(before).await.0.unwrap(), 1);
    assert_eq!(asked(&cache, 1, &loader).await.0.unwrap(), 42);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_another_process_that_lapsed_does_not_replace_it() {
    let store = MemoryStore::new(10);
    let late = lease(&store, 1, MINUTE).await;
    tokio::time::advance(MINUTE * 2).await;
    assert!(cache(store.clone()).put(1, 42).await.unwrap());
    bellwether_testkit::caches::commit(&store, late, "7").await;
    assert_eq!(cache(store).get(1).await.unwrap(), Some(42));
}

#[tokio::test(start_paused = true)]
async fn a_later_invalidation_removes_what_was_put() {
    let cache = cache(MemoryStore::new(10));
    assert!(cache.put(1, 42).await.unwrap());
    assert!(cache.invalidate(1).await.unwrap());
    assert_eq!(cache.get(1).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_that_overtakes_its_commit_leaves_nothing() {
    let memory = MemoryStore::new(10);
    let store = local(&memory);
    let committing = store.on(Operation::Commit).nth(1).hold();
    let writer = cache(store);
    let put = tokio::spawn(async move { writer.put(1, 42).await });
    committing.reached().await;
    cache(memory.clone()).invalidate(1).await.unwrap();
    committing.open();
    assert!(!ended(put).await.unwrap());
    assert_eq!(cache(memory).get(1).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_of_its_tag_that_overtakes_its_commit_leaves_nothing() {
    an_invalidated_tag_outdates_a_put(Arc::new(MemoryStore::new(10)), |_| ()).await;
}

/// A store that forgets each invalidation of a tag which no claim names.
#[derive(Debug)]
struct Forgetful(MemoryStore);

impl Store for Forgetful {
    fn lookup(&self, key: Key, _: Tags) -> StoreFuture<Option<Entry>> {
        self.0.find(key)
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        self.0.acquire(claim, term, accept)
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        self.0.renew(lease, term)
    }

    fn settle(&self, end: End) -> StoreFuture<Settled> {
        match end {
            End::Commit(lease, draft) => {
                let known = lease.claim.tags().clone();
                self.0.settle(End::Commit(lease, draft.tagged(known)))
            }
            end => self.0.settle(end),
        }
    }

    fn withdraw(&self, target: WithdrawalTarget, change: Withdrawal) -> StoreFuture<bool> {
        self.0.withdraw(target, change)
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_of_its_tag_that_the_store_forgets_leaves_nothing_either() {
    an_invalidated_tag_outdates_a_put(Arc::new(Forgetful(MemoryStore::new(10))), |_| ()).await;
}

/// Which of two writers was later at the source is not known here.
#[tokio::test(start_paused = true)]
async fn of_two_puts_that_overlap_the_first_to_begin_leaves_nothing_of_its_own() {
    for moment in [Moment::Before, Moment::After] {
        let memory = MemoryStore::new(10);
        let store = local(&memory);
        let acquired = store.on(Operation::Acquire).nth(1).holds(moment);
        let first = cache(store);
        let put = tokio::spawn(async move { first.put(1, 1).await });
        acquired.reached().await;
        let second = cache(memory.clone()).put(1, 2).await.unwrap();
        acquired.open();
        let first = ended(put).await.unwrap();
        let left = cache(memory).get(1).await.unwrap();
        match moment {
            // The first one took its lease after the second had ended.
            Moment::Before => assert_eq!((first, second, left), (true, true, Some(1))),
            // The second one ended the lease of the first.
            Moment::After => assert_eq!((first, second, left), (false, true, None)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_cannot_be_stored_removes_the_older_one() {
    let store = MemoryStore::new(10);
    let small: Cache<u64, String> =
        builder(store.clone()).max_entry_bytes(100).build().expect("options");
    assert!(small.put(1, "old".to_owned()).await.unwrap());
    assert!(!small.put(1, "x".repeat(200)).await.unwrap());
    assert_eq!(small.get(1).await.unwrap(), None);
    let private: Cache<u64, String> =
        builder(store).classify(|_: &String| Cacheability::PrivateOnce).build().expect("options");
    assert!(small.put(1, "old".to_owned()).await.unwrap());
    assert!(!private.put(1, "mine".to_owned()).await.unwrap());
    assert_eq!(small.get(1).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_put_ends_the_cooldown_of_a_failing_key() {
    let loader = Loader::new();
    loader.ends_by(LoadEnd::Fail);
    let store = MemoryStore::new(10);
    let cache: Cache<u64, usize> =
        Cache::builder("item", store).ttl(MINUTE).build().expect("options");
    for _ in 0..2 {
        asked(&cache, 1, &loader).await.0.unwrap_err();
    }
    assert!(cache.put(1, 42).await.unwrap());
    assert_eq!(asked(&cache, 1, &loader).await.0.unwrap(), 42);
}

#[tokio::test(start_paused = true)]
async fn waiters_of_other_processes_get_what_was_put() {
    assert!(waiters_get_what_was_put(&processes(local, &MemoryStore::new(10))).await);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_told_at_every_step() {
    for op in [Operation::Acquire, Operation::Commit] {
        for moment in [Moment::Before, Moment::After] {
            let store = local(&MemoryStore::new(10));
            store.on(op).fails(moment);
            let error = cache(store).put(1, 42).await.expect_err("the store failed");
            assert!(matches!(error.kind(), CacheErrorKind::Store(_)), "{error}");
        }
    }
}
