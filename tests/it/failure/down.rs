//! With the store down, loads go on, and never too many.

use bellwether::store::StoreErrorKind;
use bellwether::{BypassReason, CacheErrorKind, CacheStatus, MemoryStore, Wait, WhenStoreFails};
use bellwether_test::faulty::{FaultyStore, Operation};
use bellwether_testkit::caches::{
    NO_TIME, SECOND, answers, ask, burst, idle, kind_of, layer, remembering_layer, settled,
    unprobed,
};
use bellwether_testkit::loaders::{End, Loader};
use tokio::time::{Instant, sleep};
use tower::Layer;

fn down() -> FaultyStore<MemoryStore> {
    let store = FaultyStore::new(MemoryStore::new(10)).remote();
    store.on_any().fail(StoreErrorKind::Unreachable);
    store
}

#[tokio::test(start_paused = true)]
async fn uncached_loads_are_bounded_and_the_other_callers_wait_for_a_permit() {
    let loader = Loader::taking(SECOND);
    let cached = layer(down()).max_loads(4).build().unwrap().layer(loader.clone());
    let asked = (0..16).map(|item| ask(&cached, item)).collect();
    let began = Instant::now();
    let ended = settled(asked).await;
    assert!(ended.iter().all(|(_, how)| *how == CacheStatus::Bypass(BypassReason::StoreFailed)));
    assert_eq!((began.elapsed(), loader.most_at_once()), (SECOND * 4, 4));
    idle().await;
    assert_eq!(cached.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_a_permit_before_its_wait_ends_is_told_which_bound_is_reached() {
    for (wait, seconds) in [(Wait::at_most(SECOND * 2), 2), (Wait::fail_fast(), 0)] {
        let loader = Loader::taking(SECOND * 9);
        let layer = layer(down()).max_loads(1).wait(wait).build().unwrap();
        let cached = layer.layer(loader.clone());
        let _fills = ask(&cached, 2);
        loader.has_begun(1).await;
        let began = Instant::now();
        let (answer, _) = ask(&cached, 1).await.unwrap();
        assert_eq!(kind_of(&answer), CacheErrorKind::Full);
        assert_eq!(began.elapsed(), SECOND * seconds);
        let message = answer.unwrap_err().to_string();
        assert!(message.contains("item#") && message.contains("1 loads are under way"));
        sleep(SECOND * 20).await;
        assert_eq!((loader.loads(), cached.in_flight()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn where_it_must_not_fail_a_store_that_is_down_is_an_error_at_once() {
    let loader = Loader::new();
    let layer = layer(down()).when_store_fails(WhenStoreFails::Fail).build().unwrap();
    let cached = layer.layer(loader.clone());
    let began = Instant::now();
    for (answer, _) in settled(burst(&cached, 1, 100)).await {
        assert_eq!(kind_of(&answer), CacheErrorKind::Store(StoreErrorKind::Unreachable));
    }
    assert_eq!((began.elapsed(), loader.loads()), (NO_TIME, 0));
}

#[tokio::test(start_paused = true)]
async fn a_load_that_fails_while_the_store_is_down_backs_off_in_its_process() {
    let loader = Loader::new();
    loader.ends_by(End::Fail);
    let cached = unprobed(remembering_layer(down())).build().unwrap().layer(loader.clone());
    let mut began = Vec::new();
    for tenth in 0..160 {
        let before = loader.loads();
        let ended = settled(burst(&cached, 1, 10)).await;
        assert!(ended.iter().all(|(answer, _)| answer.as_ref().unwrap_err().load().is_some()));
        if loader.loads() > before {
            began.push(tenth / 10);
        }
        sleep(SECOND / 10).await;
    }
    assert_eq!((began, loader.loads()), (vec![0, 1, 3, 7, 15], 6));
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_cannot_be_stored_for_the_fleet_is_still_an_error_of_the_loader() {
    let store = FaultyStore::new(MemoryStore::new(10));
    store.on(Operation::Fail).fail(StoreErrorKind::Refused);
    let loader = Loader::new();
    loader.ends_by(End::Fail);
    let cached = remembering_layer(store).build().unwrap().layer(loader.clone());
    let ended = settled(burst(&cached, 1, 10)).await;
    assert!(ended.iter().all(|(answer, _)| answer.as_ref().unwrap_err().load().is_some()));
    idle().await;
    assert_eq!((loader.loads(), cached.in_flight()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn when_the_store_recovers_loads_are_kept_again() {
    let store = down();
    let cached = layer(store.clone()).build().unwrap().layer(Loader::new());
    assert_eq!(answers(vec![ask(&cached, 1)]).await, [1]);
    store.heal();
    assert_eq!(answers(vec![ask(&cached, 1)]).await, [2]);
    assert_eq!(answers(vec![ask(&cached, 1)]).await, [2]);
}
