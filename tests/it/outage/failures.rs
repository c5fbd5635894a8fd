//! Failing loads and strict caches while the store is away.

use bellwether::store::{Store, StoreErrorKind, Withdrawal, WithdrawalTarget};
use bellwether::{Cache, CacheErrorKind, WhenStoreFails};
use bellwether_testkit::caches::{
    NO_TIME, SECOND, answer, ask, burst, key, kind_of, layer, remembering_layer, settled, unprobed,
};
use bellwether_testkit::loaders::{End, Loader};
use tokio::time::{Instant, sleep};
use tower::Layer;

use super::{down, primary};

#[tokio::test(start_paused = true)]
async fn a_failing_source_is_in_cooldown_while_the_store_is_down() {
    let (_, store) = down();
    let loader = Loader::new();
    loader.ends_by(End::Fail);
    let cached = unprobed(remembering_layer(store)).build().unwrap().layer(loader.clone());
    for _ in 0..160 {
        let ended = settled(burst(&cached, 1, 10)).await;
        assert!(ended.iter().all(|(answer, _)| answer.as_ref().unwrap_err().load().is_some()));
        sleep(SECOND / 10).await;
    }
    assert_eq!(loader.loads(), 6, "as with the store: at 0, 0, 1, 3, 7 and 15 s");
}

#[tokio::test(start_paused = true)]
async fn a_cooldown_goes_on_when_the_store_goes_away() {
    let (primary, store) = primary();
    let loader = Loader::new();
    loader.ends_by(End::Fail);
    let cached = unprobed(remembering_layer(store)).build().unwrap().layer(loader.clone());
    for _ in 0..2 {
        settled(burst(&cached, 1, 1)).await;
    }
    assert_eq!(loader.loads(), 2);
    primary.on_any().fail(StoreErrorKind::Unreachable);
    settled(burst(&cached, 1, 10)).await;
    assert_eq!(loader.loads(), 2);
}

#[tokio::test(start_paused = true)]
async fn where_it_must_not_fail_a_lease_that_the_process_grants_itself_is_the_stores_failure() {
    let (primary, store) = down();
    let loader = Loader::new();
    let layer = layer(store).when_store_fails(WhenStoreFails::Fail).build().unwrap();
    let cached = layer.layer(loader.clone());
    let begun = Instant::now();
    for (answer, _) in settled(burst(&cached, 1, 100)).await {
        assert_eq!(kind_of(&answer), CacheErrorKind::Store(StoreErrorKind::Unreachable));
    }
    assert_eq!((begun.elapsed(), loader.loads()), (NO_TIME, 0));
    primary.heal();
    sleep(SECOND).await;
    answer(&cached, 1).await;
    assert_eq!(loader.loads(), 1, "no lease is left");
}

#[tokio::test(start_paused = true)]
async fn a_put_fails_while_the_store_is_down() {
    let (primary, store) = primary();
    let items: Cache<u64, u64> = Cache::builder("item", store).ttl(SECOND * 60).build().unwrap();
    items.put(&1, 7).await.unwrap();
    primary.on_any().fail(StoreErrorKind::Unreachable);
    let put = items.put(&1, 8).await;
    assert_eq!(put.unwrap_err().kind(), CacheErrorKind::Store(StoreErrorKind::Unreachable));
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_gives_the_error_of_the_store() {
    let (_, store) = down();
    let changed = store.withdraw(WithdrawalTarget::Key(key(1)), Withdrawal::Invalidate).await;
    assert_eq!(changed.unwrap_err().kind(), StoreErrorKind::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn the_opener_of_a_flight_whose_load_fails_in_an_outage_is_told_so() {
    let (_, store) = down();
    let loader = Loader::new();
    loader.ends_by(End::Fail);
    let cached = layer(store).build().unwrap().layer(loader.clone());
    let (answer, _) = ask(&cached, 1).await.unwrap();
    assert!(answer.unwrap_err().load().is_some());
}
