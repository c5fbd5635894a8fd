//! What this process has invalidated is not answered from its memory.

use bellwether::Tag;
use bellwether::store::{Settled, Store, StoreErrorKind, Withdrawal, WithdrawalTarget};
use bellwether_test::StoreExt as _;
use bellwether_testkit::caches::{
    MINUTE, SECOND, answer, answers, ask, burst, cached, commit, idle, key, layer, lease,
};
use bellwether_testkit::loaders::Loader;
use tokio::time::sleep;
use tower::Layer;

use super::{down, primary};
use crate::support::store::Operation;

#[tokio::test(start_paused = true)]
async fn an_invalidation_that_fails_is_one_of_the_memory_at_once() {
    for change in [Withdrawal::Invalidate, Withdrawal::EXPIRE] {
        let (_, store) = down();
        let loader = Loader::new();
        let cached = cached(store.clone(), &loader);
        assert_eq!(answer(&cached, 1).await, 1);
        store.withdraw(WithdrawalTarget::Key(key(1)), change).await.unwrap_err();
        assert_eq!(answer(&cached, 1).await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tag_that_is_invalidated_in_an_outage_removes_its_entries_from_the_memory() {
    let (_, store) = down();
    let loader = Loader::new();
    let shelf = Tag::of("shelf").with(1);
    let layer = layer(store).tags(|item: &u64| [Tag::of("shelf").with(*item)]).build().unwrap();
    let cached = layer.layer(loader.clone());
    assert_eq!(answer(&cached, 1).await, 1);
    assert_eq!(answer(&cached, 1).await, 1);
    layer.handle().invalidate_tag(&shelf).await.unwrap_err();
    assert_eq!(answer(&cached, 1).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_load_without_the_store_that_began_before_an_invalidation_is_not_kept() {
    let (_, store) = down();
    let begun = lease(&store, 1, MINUTE).await;
    store.invalidate(key(1)).await.unwrap_err();
    assert_eq!(commit(&store, begun, "older").await, Settled::Superseded);
    assert!(store.find(key(1)).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_load_that_began_during_an_invalidation_is_not_kept() {
    let (primary, store) = primary();
    let gate = primary.on(Operation::Invalidate).nth(1).hold();
    let invalidation = tokio::spawn(store.invalidate(key(1)));
    gate.reached().await;
    primary.on(Operation::Acquire).fail(StoreErrorKind::Unreachable);
    let begun = lease(&store, 1, MINUTE).await;
    assert!(begun.outage.is_some());
    gate.open();
    invalidation.await.unwrap().unwrap();
    assert_eq!(commit(&store, begun, "older").await, Settled::Superseded);
}

/// While it was away from the store, another process may have invalidated the key.
#[tokio::test(start_paused = true)]
async fn a_caller_that_comes_when_the_store_is_back_gets_no_value_of_a_load_from_before() {
    let (primary, store) = down();
    let loader = Loader::gated();
    let cached = cached(store, &loader);
    let first = ask(&cached, 1);
    loader.has_begun(1).await;
    primary.heal();
    let later = burst(&cached, 1, 10);
    idle().await;
    loader.let_go(2);
    assert_eq!(answers(vec![first]).await, [1]);
    assert_eq!(answers(later).await, [2; 10]);
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_that_hangs_in_the_store_has_reached_the_memory() {
    let (primary, store) = down();
    let loader = Loader::new();
    let cached = cached(store.clone(), &loader);
    answer(&cached, 1).await;
    primary.on(Operation::Invalidate).hang();
    let hanging = tokio::spawn(store.invalidate(key(1)));
    idle().await;
    answer(&cached, 1).await;
    assert_eq!(loader.loads(), 2);
    hanging.abort();
    sleep(SECOND).await;
}
