//! What is refused: too many tags, clearing what is not clearable, stores without tags.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bellwether::store::{
    Accept, Acquire, Claim, End, Entry, Lease, Renew, Settled, Store, StoreErrorKind, StoreFuture,
    Tags, Withdrawal, WithdrawalTarget,
};
use bellwether::{CacheErrorKind, CacheStatus, Error, Key, MemoryStore, StoreError, Tag};
use bellwether_test::StoreExt as _;
use bellwether_testkit::caches::{answer, answers, ask, burst, cached, kind_of, layer};
use bellwether_testkit::loaders::Loader;
use tower::Layer;

use super::{shelf, tagged};
use crate::support::store::{Operation, UNREACHABLE, local};

fn numbered(count: usize) -> impl Iterator<Item = Tag> {
    (0..count).map(|number| Tag::of("number").with(number))
}

#[tokio::test(start_paused = true)]
async fn a_request_with_too_many_tags_is_refused_with_their_number() {
    let loader = Loader::new();
    let cached = layer(MemoryStore::new(10))
        .tags(|item: &u64| numbered(Tags::MOST + *item as usize))
        .build()
        .unwrap()
        .layer(loader.clone());
    assert_eq!(answer(&cached, 0).await, 1);
    let (refused, status) = ask(&cached, 1).await.expect("no panic");
    assert_eq!(kind_of(&refused), CacheErrorKind::TooManyTags);
    let Err(Error::Cache(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("tags must be from 0 to 32, not 33"));
    assert_eq!((status, loader.loads()), (CacheStatus::Failed, 1));
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_too_many_tags_is_shared_and_not_stored() {
    let store = MemoryStore::new(10);
    let cached = layer(store.clone())
        .tags(|_: &u64| numbered(20))
        .answer_tags(|_: &usize| (0..13).map(|number| Tag::of("of the answer").with(number)))
        .build()
        .unwrap()
        .layer(Loader::new());
    assert_eq!(answers(burst(&cached, 1, 10)).await, [1; 10]);
    let too_many = layer(store.clone()).answer_tags(|_: &usize| numbered(33)).build().unwrap();
    assert_eq!(answer(&too_many.layer(Loader::new()), 2).await, 1);
    assert_eq!(answer(&cached, 1).await, 2);
}

#[tokio::test(start_paused = true)]
async fn clearing_removes_all_entries_of_clearable_layers_and_no_others() {
    let (store, loader) = (MemoryStore::new(10), Loader::new());
    let clearable = || layer(store.clone()).clearable().tags(|item: &u64| [shelf(*item)]);
    let [one, other] = [(); 2].map(|()| clearable().build().unwrap().layer(loader.clone()));
    let unclearable = cached(store, &loader);
    answer(&one, 1).await;
    answer(&other, 2).await;
    answer(&unclearable, 3).await;
    one.handle().clear().await.expect("it works");
    assert_eq!(answer(&unclearable, 3).await, 3);
    assert_eq!([answer(&one, 1).await, answer(&other, 2).await], [4, 5]);
    let refused = unclearable.handle().clear().await.unwrap_err();
    assert_eq!(refused.kind(), CacheErrorKind::NotClearable);
}

#[tokio::test(start_paused = true)]
async fn hits_in_this_process_do_not_ask_for_tags() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let cached = layer(MemoryStore::new(10))
        .tags(move |item: &u64| {
            count.fetch_add(1, Ordering::SeqCst);
            [shelf(*item)]
        })
        .build()
        .unwrap();
    let cached = cached.layer(Loader::new());
    for _ in 0..10 {
        answer(&cached, 1).await;
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_that_fails_names_the_tag() {
    let store = local(&MemoryStore::new(10));
    let handle = tagged(store.clone(), &Loader::new()).handle();
    for operation in [Operation::InvalidateTag, Operation::ExpireTag] {
        store.on(operation).fail(UNREACHABLE);
    }
    let failed = handle.invalidate_tag(&shelf(1)).await.unwrap_err();
    assert_eq!(failed.kind(), CacheErrorKind::Store(UNREACHABLE));
    assert!(failed.to_string().starts_with(&format!("tag `{}`: ", shelf(1))), "{failed}");
    assert!(handle.expire_tag(&shelf(1), Duration::ZERO).await.is_err());
}

/// A store that was written before there were tags.
#[derive(Debug)]
struct WithoutTags(MemoryStore);

impl Store for WithoutTags {
    fn lookup(&self, key: Key, _: Tags) -> StoreFuture<Option<Entry>> {
        self.0.find(key)
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        self.0.acquire(Claim::new(claim.key().clone()), term, accept)
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        self.0.renew(lease, term)
    }

    fn settle(&self, end: End) -> StoreFuture<Settled> {
        self.0.settle(end)
    }

    fn withdraw(&self, target: WithdrawalTarget, change: Withdrawal) -> StoreFuture<bool> {
        if let WithdrawalTarget::Tag(_) = target {
            let error = StoreError::new(StoreErrorKind::Unsupported, "there are no tags");
            return Box::pin(async { Err(error) });
        }
        self.0.withdraw(target, change)
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_without_tags_stores_and_refuses_to_invalidate_one() {
    let cached = tagged(WithoutTags(MemoryStore::new(10)), &Loader::new());
    answer(&cached, 1).await;
    assert_eq!(answer(&cached, 1).await, 1);
    let refused = cached.handle().invalidate_tag(&shelf(1)).await.unwrap_err();
    assert_eq!(refused.kind(), CacheErrorKind::Store(StoreErrorKind::Unsupported));
}
