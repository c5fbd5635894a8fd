//! If a load fails, a stale answer is better than an error.

use std::time::Duration;

use bellwether::codec::Cacheability;
use bellwether::service::ReadThroughLayerBuilder;
use bellwether::store::{Accept, Acquire, Claim, Lease, Store};
use bellwether::{CacheErrorKind, CacheStatus, MemoryStore, StaleReason, Wait, WhenStoreFails};
use bellwether_test::StoreExt as _;
use bellwether_testkit::caches::{
    Cached, KeyOf, MINUTE, SECOND, answer, answers, ask, burst, idle, kind_of, remembering_layer,
    settled,
};
use bellwether_testkit::loaders::{End, Loader};
use tokio::time::{Instant, sleep};
use tower::Layer;

use super::{PLACES, stale_for, stale_if_error, surviving, why};
use crate::support::store::{Operation, UNREACHABLE, local, losing_push};

/// The lease of another process, which loads for ever.
async fn leased_by_another_process(store: &MemoryStore) -> Lease {
    match store
        .acquire(Claim::new(bellwether_testkit::caches::key(1)), MINUTE * 10, Accept::Fresh)
        .await
    {
        Ok(Acquire::Lead { lease, .. }) => lease,
        other => panic!("{other:?}"),
    }
}

/// Half of them come before the load, and half of them during it.
async fn a_burst_before_and_during_a_load_is_given_the_stale_answer(
    cached: &Cached,
    context: &str,
) {
    let mut asked = burst(cached, 1, 500);
    sleep(SECOND / 2).await;
    asked.extend(burst(cached, 1, 500));
    let reasons = settled(asked).await;
    for reason in reasons.iter().map(why) {
        assert_eq!(reason, StaleReason::LoadFailed, "{context}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_that_ends_badly_is_no_error_for_any_caller() {
    for (place, end) in
        PLACES.into_iter().flat_map(|place| [End::Fail, End::Panic].map(|end| (place, end)))
    {
        let loader = Loader::taking(SECOND);
        loader.ends_by(end);
        let layer: ReadThroughLayerBuilder<KeyOf> =
            remembering_layer(place(&stale_if_error().await));
        let cached = layer.build().unwrap().layer(loader.clone());
        a_burst_before_and_during_a_load_is_given_the_stale_answer(&cached, &format!("{end:?}"))
            .await;
        assert_eq!(loader.loads(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_that_takes_too_long_is_no_error_for_any_caller() {
    for place in PLACES {
        let layer = remembering_layer(place(&stale_if_error().await));
        let layer = layer.load_timeout(SECOND);
        // Callers that came during the load wait for another one, and perhaps for one more.
        let cached = layer.wait(Wait::at_most(SECOND * 5)).build().unwrap().layer(Loader::gated());
        a_burst_before_and_during_a_load_is_given_the_stale_answer(&cached, "too long").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_whose_load_fails_has_no_error() {
    for place in PLACES {
        let memory = stale_if_error().await;
        let loader = Loader::taking(SECOND);
        loader.ends_by(End::Fail);
        let fleet = [(); 4]
            .map(|()| remembering_layer(place(&memory)).build().unwrap().layer(loader.clone()));
        let asked = fleet.iter().flat_map(|process| burst(process, 1, 250)).collect();
        let began = Instant::now();
        assert!(settled(asked).await.iter().all(|ended| why(ended) == StaleReason::LoadFailed));
        assert!(began.elapsed() < SECOND * 3, "it took {:?}", began.elapsed());
        assert_eq!(loader.loads(), 2);
    }
}

/// After a failure, the stale answer is served for its stale lifetime. After that there is an
/// error.
#[tokio::test(start_paused = true)]
async fn a_stale_answer_is_served_within_its_stale_lifetime_only() {
    for place in PLACES {
        let loader = Loader::new();
        loader.ends_by(End::Fail);
        let cached =
            remembering_layer(place(&stale_if_error().await)).build().unwrap().layer(loader);
        sleep(MINUTE - SECOND / 10).await;
        assert_eq!(why(&ask(&cached, 1).await.unwrap()), StaleReason::LoadFailed);
        sleep(SECOND / 10).await;
        let (answer, status) = ask(&cached, 1).await.unwrap();
        assert!(answer.is_err() && status == CacheStatus::Failed, "{answer:?} {status:?}");
    }
}

/// It was within its stale lifetime when they asked, and is not any more when they give up.
#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_past_the_stale_lifetime_is_not_given_the_stale_answer() {
    for (place, callers) in PLACES.into_iter().flat_map(|place| [1, 2].map(|n| (place, n))) {
        let memory = stale_for(|windows| windows.stale_if_error(SECOND * 3)).await;
        let _held = leased_by_another_process(&memory).await;
        let cached = surviving(place(&memory))
            .wait(Wait::at_most(SECOND * 5))
            .build()
            .unwrap()
            .layer(Loader::new());
        for (answer, _) in settled(burst(&cached, 1, callers)).await {
            assert_eq!(kind_of(&answer), CacheErrorKind::WaitTimedOut);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_wait_ends_is_told_how_stale_the_answer_is_by_then() {
    for (place, callers) in PLACES.into_iter().flat_map(|place| [1, 2].map(|n| (place, n))) {
        let memory = stale_if_error().await;
        let _held = leased_by_another_process(&memory).await;
        let cached = surviving(place(&memory))
            .wait(Wait::at_most(SECOND * 5))
            .build()
            .unwrap()
            .layer(Loader::new());
        for (_, status) in settled(burst(&cached, 1, callers)).await {
            let CacheStatus::Stale { why, stale_for } = status else { panic!("{status:?}") };
            assert_eq!((why, stale_for.as_secs()), (StaleReason::WaitRanOut, 5));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_wait_for_another_process_ends_is_given_the_stale_answer() {
    for place in PLACES {
        let memory = stale_if_error().await;
        let _held = leased_by_another_process(&memory).await;
        let cached = surviving(place(&memory))
            .wait(Wait::at_most(SECOND * 5))
            .build()
            .unwrap()
            .layer(Loader::new());
        let mut asked = burst(&cached, 1, 10);
        sleep(SECOND).await;
        asked.extend(burst(&cached, 1, 10));
        let began = Instant::now();
        assert!(settled(asked).await.iter().all(|ended| why(ended) == StaleReason::WaitRanOut));
        assert_eq!(began.elapsed().as_secs(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_wait_for_a_load_here_ends_is_given_the_stale_answer() {
    for place in PLACES {
        let loader = Loader::gated();
        let layer = surviving(place(&stale_if_error().await))
            .wait(Wait::at_most(SECOND * 5))
            .build()
            .unwrap();
        let cached = layer.layer(loader.clone());
        let _leads = burst(&cached, 1, 2);
        loader.has_begun(1).await;
        sleep(SECOND).await;
        let late = settled(burst(&cached, 1, 10)).await;
        assert!(late.iter().all(|ended| why(ended) == StaleReason::WaitRanOut));
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_does_not_wait_is_given_the_stale_answer() {
    for place in PLACES {
        let memory = stale_if_error().await;
        let _held = leased_by_another_process(&memory).await;
        let layer = surviving(place(&memory)).wait(Wait::fail_fast()).build().unwrap();
        let ended = settled(burst(&layer.layer(Loader::new()), 1, 10)).await;
        assert!(ended.iter().all(|ended| why(ended) == StaleReason::WaitRanOut));
    }
}

#[tokio::test(start_paused = true)]
async fn when_a_caller_is_shed_a_stale_answer_is_served() {
    for place in PLACES {
        let loader = Loader::gated();
        let layer = surviving(place(&stale_if_error().await));
        let cached = layer.max_flights(1).build().unwrap().layer(loader.clone());
        let _fills = ask(&cached, 2);
        loader.has_begun(1).await;
        assert_eq!(why(&ask(&cached, 1).await.unwrap()), StaleReason::NoRoom);
    }
}

#[tokio::test(start_paused = true)]
async fn with_too_many_waiters_a_stale_answer_is_served() {
    let loader = Loader::gated();
    let layer = surviving(local(&stale_if_error().await));
    let cached = layer.max_waiters(2).build().unwrap().layer(loader.clone());
    let _fill = burst(&cached, 1, 2);
    loader.has_begun(1).await;
    assert_eq!(why(&ask(&cached, 1).await.unwrap()), StaleReason::NoRoom);
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_is_served_when_a_required_store_fails() {
    for place in PLACES {
        let store = place(&stale_if_error().await);
        store.on(Operation::Acquire).fail(UNREACHABLE);
        let loader = Loader::new();
        let layer = surviving(store).when_store_fails(WhenStoreFails::Fail).build().unwrap();
        let ended = ask(&layer.layer(loader.clone()), 1).await.unwrap();
        assert_eq!((why(&ended), loader.loads()), (StaleReason::LoadFailed, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_uncached_load_that_fails_is_no_error_with_a_stale_answer() {
    for place in PLACES {
        let store = place(&stale_if_error().await);
        store.on(Operation::Acquire).fail(UNREACHABLE);
        let loader = Loader::new();
        loader.ends_by(End::Fail);
        let ended = ask(&surviving(store).build().unwrap().layer(loader), 1).await.unwrap();
        assert_eq!(why(&ended), StaleReason::LoadFailed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_is_served_instead_of_one_that_counts_as_a_failure() {
    for place in PLACES {
        let layer = remembering_layer(place(&stale_if_error().await));
        let layer = layer.classify(|_: &usize| Cacheability::Failure).build().unwrap();
        let ended = settled(burst(&layer.layer(Loader::taking(SECOND)), 1, 10)).await;
        assert!(ended.iter().all(|ended| why(ended) == StaleReason::LoadFailed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_that_succeeds_is_worth_waiting_for_though_something_is_stale() {
    for place in PLACES {
        let cached = surviving(place(&stale_if_error().await))
            .build()
            .unwrap()
            .layer(Loader::taking(SECOND));
        let mut asked = burst(&cached, 1, 10);
        sleep(Duration::from_millis(500)).await;
        asked.extend(burst(&cached, 1, 10));
        assert_eq!(answers(asked).await, [1; 20]);
    }
}

#[tokio::test(start_paused = true)]
async fn once_the_loader_recovers_what_is_stale_is_replaced() {
    for place in PLACES {
        let loader = Loader::new();
        loader.ends_by(End::Fail);
        let cached = remembering_layer(place(&stale_if_error().await))
            .build()
            .unwrap()
            .layer(loader.clone());
        assert_eq!(why(&ask(&cached, 1).await.unwrap()), StaleReason::LoadFailed);
        assert_eq!(why(&ask(&cached, 1).await.unwrap()), StaleReason::LoadFailed);
        loader.ends_by(End::Answer);
        assert_eq!(why(&ask(&cached, 1).await.unwrap()), StaleReason::LoadFailed);
        sleep(SECOND).await;
        assert_eq!(answer(&cached, 1).await, 3);
        idle().await;
        assert_eq!(cached.in_flight(), 0);
    }
}

/// Promise 7: the stale fallback of an earlier lookup is for the generation of that lookup, and not
/// for callers after an invalidation.
#[tokio::test(start_paused = true)]
async fn a_caller_after_an_invalidation_is_not_given_an_earlier_stale_fallback() {
    for place in PLACES {
        let memory = stale_if_error().await;
        let _held = leased_by_another_process(&memory).await;
        let store = losing_push(place(&memory));
        let loader = Loader::new();
        loader.ends_by(End::Fail);
        let cached = surviving(store.clone()).build().unwrap().layer(loader.clone());
        let earlier = ask(&cached, 1);
        idle().await;
        assert_eq!(store.calls(Operation::Acquire), 1);
        memory.invalidate(bellwether_testkit::caches::key(1)).await.unwrap();
        // It has returned. From here on no caller may be given the 42.
        let later = ask(&cached, 1);
        idle().await;
        store.on(Operation::Acquire).fail(UNREACHABLE);
        let (later, status) = later.await.unwrap();
        let _ = earlier.await.unwrap();
        assert!(later.is_err(), "{later:?} {status:?} after the invalidation returned");
    }
}
