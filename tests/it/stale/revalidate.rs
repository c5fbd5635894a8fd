//! During a reload, the stale answer is served, and no caller waits.

use std::time::Duration;

use bellwether::store::{Accept, Acquire, Claim, Store};
use bellwether::{CacheStatus, Lifetimes, MemoryStore, StaleReason, WhenAbandoned};
use bellwether_testkit::caches::promises::a_stale_answer_is_replaced_by_one_load;
use bellwether_testkit::caches::{
    JSON, MINUTE, NO_TIME, SECOND, answer, answers, ask, burst, commit, idle, is_leased, key,
    put_for, remembering_layer, settled, unprobed,
};
use bellwether_testkit::loaders::{End, Loader};
use tokio::time::{Instant, sleep};
use tower::Layer;

use super::{PLACES, revalidating, stale_while_revalidating, why};
use crate::support::store::{Operation, UNREACHABLE, processes, remote};

#[tokio::test(start_paused = true)]
async fn a_stale_answer_is_served_at_once_and_loaded_again_in_the_background() {
    for place in PLACES {
        let cached = revalidating(place(&stale_while_revalidating().await))
            .build()
            .unwrap()
            .layer(Loader::taking(SECOND));
        sleep(SECOND).await;
        let began = Instant::now();
        let (answer, status) = ask(&cached, 1).await.unwrap();
        assert_eq!((answer.unwrap(), began.elapsed()), (42, NO_TIME));
        assert_eq!(
            status,
            CacheStatus::Stale { why: StaleReason::Revalidating, stale_for: SECOND }
        );
        sleep(SECOND + Duration::from_millis(1)).await;
        let (answer, status) = ask(&cached, 1).await.unwrap();
        assert_eq!(answer.unwrap(), 1);
        assert!(matches!(status, CacheStatus::Hit { .. }), "{status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_loads_a_stale_answer_again_once() {
    for place in PLACES {
        a_stale_answer_is_replaced_by_one_load(&processes(place, &MemoryStore::new(10))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_caller_is_delayed_during_a_load_in_the_background() {
    for (place, callers) in PLACES.into_iter().flat_map(|place| [1, 2].map(|n| (place, n))) {
        let loader = Loader::gated();
        let cached = revalidating(place(&stale_while_revalidating().await))
            .build()
            .unwrap()
            .layer(loader.clone());
        answers(burst(&cached, 1, callers)).await;
        loader.has_begun(1).await;
        let began = Instant::now();
        assert_eq!(answers(burst(&cached, 1, 1_000)).await, [42; 1_000]);
        assert_eq!((began.elapsed(), loader.loads()), (NO_TIME, 1));
    }
}

/// They joined a flight whose request was sent before they came, so its answer is not for them. But
/// they need not wait for the load either.
#[tokio::test(start_paused = true)]
async fn no_caller_is_delayed_while_the_lease_is_asked_for() {
    let store = remote(&stale_while_revalidating().await);
    let asking = store.on(Operation::Acquire).nth(1).do_it_and_hold();
    let loader = Loader::gated();
    let cached = revalidating(store.clone()).build().unwrap().layer(loader.clone());
    let mut asked = burst(&cached, 1, 2);
    asking.reached().await;
    asked.extend(burst(&cached, 1, 1_000));
    idle().await;
    let began = Instant::now();
    asking.open();
    let ended = settled(asked).await;
    assert!(ended.iter().all(|ended| why(ended) == StaleReason::Revalidating));
    assert!(began.elapsed() < SECOND, "they waited {:?}", began.elapsed());
    assert_eq!(loader.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_caller_is_delayed_while_another_process_refreshes() {
    for place in PLACES {
        let memory = stale_while_revalidating().await;
        let acquired = memory.acquire(Claim::new(key(1)), MINUTE, Accept::Fresh).await.unwrap();
        let Acquire::Lead { lease, .. } = acquired else { panic!("{acquired:?}") };
        let loader = Loader::new();
        let cached = revalidating(place(&memory)).build().unwrap().layer(loader.clone());
        for _ in 0..3 {
            let began = Instant::now();
            assert_eq!(answers(burst(&cached, 1, 100)).await, [42; 100]);
            assert!(began.elapsed() < SECOND / 10, "they waited {:?}", began.elapsed());
            sleep(SECOND).await;
        }
        commit(&memory, lease, "43").await;
        assert_eq!(answers(burst(&cached, 1, 100)).await, [43; 100]);
        idle().await;
        assert_eq!((loader.loads(), cached.in_flight()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_in_the_background_goes_on_without_waiters() {
    for (place, callers) in PLACES.into_iter().flat_map(|place| [1, 100].map(|n| (place, n))) {
        let loader = Loader::taking(SECOND);
        let layer = revalidating(place(&stale_while_revalidating().await))
            .when_abandoned(WhenAbandoned::Cancel)
            .build()
            .unwrap();
        let cached = layer.layer(loader.clone());
        answers(burst(&cached, 1, callers)).await;
        loader.has_begun(1).await;
        sleep(SECOND * 2).await;
        assert_eq!((loader.loads(), loader.dropped()), (1, 0));
        assert_eq!(answer(&cached, 1).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn after_its_stale_lifetime_a_stale_answer_is_a_miss() {
    for place in PLACES {
        let memory = stale_while_revalidating().await;
        sleep(MINUTE).await;
        let cached = revalidating(place(&memory)).build().unwrap().layer(Loader::new());
        assert_eq!(answers(burst(&cached, 1, 10)).await, [1; 10]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_with_both_stale_lifetimes_is_fresh_for_exactly_its_ttl() {
    for place in PLACES {
        let layer =
            revalidating(place(&MemoryStore::new(10))).stale_if_error(MINUTE * 5).build().unwrap();
        let cached = layer.layer(Loader::new());
        answer(&cached, 1).await;
        sleep(MINUTE - Duration::from_millis(1)).await;
        let (_, status) = ask(&cached, 1).await.unwrap();
        assert_eq!(status, CacheStatus::Hit { fresh_for: Some(Duration::from_millis(1)) });
        idle().await;
        let (_, status) = ask(&cached, 1).await.unwrap();
        assert_eq!(
            status,
            CacheStatus::Stale { why: StaleReason::Revalidating, stale_for: NO_TIME }
        );
    }
}

async fn a_refresh_that_ends_badly_is_survived(end: End) {
    for place in PLACES {
        let memory = stale_while_revalidating().await;
        let loader = Loader::new();
        loader.ends_by(end);
        let cached = revalidating(place(&memory)).build().unwrap().layer(loader.clone());
        assert_eq!(answers(burst(&cached, 1, 10)).await, [42; 10]);
        sleep(SECOND).await;
        assert!(!is_leased(&memory, 1).await);
        assert_eq!(cached.in_flight(), 0);
        loader.ends_by(End::Answer);
        assert_eq!(answer(&cached, 1).await, 42);
        idle().await;
        assert_eq!(answer(&cached, 1).await, loader.loads());
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_that_fails_in_the_background_is_survived() {
    a_refresh_that_ends_badly_is_survived(End::Fail).await;
}

#[tokio::test(start_paused = true)]
async fn a_load_that_panics_in_the_background_is_survived() {
    for end in [End::Panic, End::PanicInCall, End::PanicInPollReady] {
        a_refresh_that_ends_badly_is_survived(end).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_that_failed_in_the_background_is_not_tried_again_within_the_cooldown() {
    for place in PLACES {
        let memory = stale_while_revalidating().await;
        let loader = Loader::new();
        loader.ends_by(End::Fail);
        let process = || unprobed(remembering_layer(place(&memory)));
        let fleet = [(); 4].map(|()| process().build().unwrap().layer(loader.clone()));
        for _ in 0..9 {
            let asked = fleet.iter().flat_map(|process| burst(process, 1, 25)).collect();
            for ended in settled(asked).await {
                // A caller that joins a lookup of others gets a status without a refresh.
                assert!(
                    [StaleReason::Revalidating, StaleReason::LoadFailed].contains(&why(&ended))
                );
            }
            sleep(SECOND / 10).await;
        }
        assert_eq!(loader.loads(), 2);
    }
}

/// Its lease lapses while it loads, and another process stores first.
#[tokio::test(start_paused = true)]
async fn a_late_load_in_the_background_replaces_nothing_newer() {
    for place in PLACES {
        let memory = stale_while_revalidating().await;
        let store = place(&memory);
        let slow = Loader::gated();
        store.on(Operation::Renew).fail(UNREACHABLE);
        let layer = revalidating(store).lease(SECOND).build().unwrap();
        let late = layer.layer(slow.clone());
        assert_eq!(answer(&late, 1).await, 42);
        sleep(SECOND * 2).await;
        put_for(&memory, 1, "43", JSON, Lifetimes::fresh_for(MINUTE)).await;
        slow.let_go(1);
        idle().await;
        assert_eq!((slow.running(), answer(&late, 1).await), (0, 43));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_invalidated_during_a_load_in_the_background_is_not_stored() {
    for place in PLACES {
        let loader = Loader::gated();
        let cached = revalidating(place(&stale_while_revalidating().await))
            .build()
            .unwrap()
            .layer(loader.clone());
        assert_eq!(answer(&cached, 1).await, 42);
        loader.has_begun(1).await;
        cached.handle().invalidate(&key(1)).await.unwrap();
        let later = ask(&cached, 1);
        idle().await;
        loader.let_go(2);
        assert_eq!(answers(vec![later]).await, [2]);
        assert_eq!(answer(&cached, 1).await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_entry_is_served_while_it_is_loaded_again() {
    for place in PLACES {
        let cached = revalidating(place(&MemoryStore::new(10)))
            .build()
            .unwrap()
            .layer(Loader::taking(SECOND));
        answer(&cached, 1).await;
        cached.handle().expire(&key(1)).await.unwrap();
        let (answered, status) = ask(&cached, 1).await.unwrap();
        assert_eq!(answered.unwrap(), 1);
        assert_eq!(
            status,
            CacheStatus::Stale { why: StaleReason::Revalidating, stale_for: NO_TIME }
        );
        sleep(SECOND * 2).await;
        assert_eq!(answer(&cached, 1).await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn when_a_load_is_shed_a_stale_answer_is_served_without_it() {
    for place in PLACES {
        let loader = Loader::gated();
        let layer = revalidating(place(&stale_while_revalidating().await));
        let cached = layer.max_flights(1).build().unwrap().layer(loader.clone());
        let _fills = ask(&cached, 2);
        loader.has_begun(1).await;
        assert_eq!((answer(&cached, 1).await, loader.loads()), (42, 1));
    }
}

/// The loaded answer could not be stored, and no caller waits for it.
#[tokio::test(start_paused = true)]
async fn a_refresh_that_gets_no_answer_from_the_store_does_not_load() {
    let store = remote(&stale_while_revalidating().await);
    store.on(Operation::Acquire).fail(UNREACHABLE);
    let loader = Loader::new();
    let cached = revalidating(store.clone()).build().unwrap().layer(loader.clone());
    assert_eq!(answer(&cached, 1).await, 42);
    sleep(SECOND).await;
    assert_eq!((store.calls(Operation::Acquire), loader.loads(), cached.in_flight()), (1, 0, 0));
}
