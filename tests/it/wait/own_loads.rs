//! A caller whose wait ends makes an uncached load, if the policy says so.

use bellwether::{BypassReason, CacheStatus, LoadLocation, MemoryStore, Wait};
use bellwether_testkit::caches::{
    JSON, MINUTE, NO_TIME, SECOND, answers, ask, burst, cached, idle, kind_of, lease, put, settled,
};
use bellwether_testkit::loaders::{End, Loader};
use tokio::time::{Instant, sleep};

use super::waiting;

fn then_load() -> Wait {
    Wait::at_most(SECOND * 5).then_load()
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_wait_ends_makes_an_uncached_load() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let began = Instant::now();
    let asked = ask(&waiting(store.clone(), then_load(), &Loader::new()), 1);
    let (answer, status) = asked.await.unwrap();
    assert_eq!(answer.unwrap(), 1);
    assert_eq!(status, CacheStatus::Bypass(BypassReason::WaitRanOut));
    assert_eq!(began.elapsed(), SECOND * 5);
}

#[tokio::test(start_paused = true)]
async fn the_answer_of_an_uncached_load_is_not_stored() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    answers(vec![ask(&waiting(store.clone(), then_load(), &Loader::new()), 1)]).await;
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn callers_that_give_up_together_share_a_load() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let asked = burst(&waiting(store, then_load(), &Loader::taking(SECOND)), 1, 100);
    assert_eq!(answers(asked).await, [1; 100]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_later_is_not_given_a_load_that_had_begun() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let cached = waiting(store, then_load(), &Loader::taking(SECOND * 2));
    let early = ask(&cached, 1);
    sleep(SECOND).await;
    let late = ask(&cached, 1);
    assert_eq!(answers(vec![early, late]).await, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn callers_that_give_up_one_after_the_other_load_one_at_a_time() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let loader = Loader::taking(SECOND * 2);
    let cached = waiting(store, then_load(), &loader);
    let mut asked = Vec::new();
    for _ in 0..20 {
        asked.push(ask(&cached, 1));
        sleep(SECOND / 4).await;
    }
    answers(asked).await;
    assert_eq!(loader.most_at_once(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_fails_fast_can_make_an_uncached_load_at_once() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let began = Instant::now();
    let cached = waiting(store, Wait::fail_fast().then_load(), &Loader::new());
    let asked = burst(&cached, 1, 100);
    answers(asked).await;
    assert_eq!(began.elapsed(), NO_TIME);
}

#[tokio::test(start_paused = true)]
async fn an_uncached_load_that_fails_fails_for_all_its_waiters() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let loader = Loader::taking(SECOND);
    loader.ends_by(End::Fail);
    let ended = settled(burst(&waiting(store, then_load(), &loader), 1, 10)).await;
    assert!(ended.iter().all(|(answer, _)| answer.as_ref().is_err_and(|e| e.load().is_some())));
    assert_eq!(loader.loads(), 2);
}

/// The caller whose flight waits for another process has lent its request to that flight.
#[tokio::test(start_paused = true)]
async fn the_caller_that_opened_the_flight_takes_its_request_back_and_loads() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let cached = waiting(store, then_load(), &Loader::gated());
    let opener = ask(&cached, 1);
    sleep(SECOND * 3).await;
    let _follower = ask(&cached, 1);
    sleep(SECOND * 3).await;
    assert_eq!(cached.get_ref().running(), 1);
    cached.get_ref().let_go(1);
    let (_, status) = opener.await.unwrap();
    assert_eq!(status, CacheStatus::Bypass(BypassReason::WaitRanOut));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_a_flight_without_a_request_is_answered_by_another_process() {
    let store = MemoryStore::new(10);
    let held = lease(&store, 1, MINUTE).await;
    let cached = waiting(store.clone(), then_load(), &Loader::new());
    let opener = ask(&cached, 1);
    sleep(SECOND * 3).await;
    let follower = ask(&cached, 1);
    answers(vec![opener]).await;
    give_back(&store, held).await;
    put(&store, 1, "42", JSON).await;
    let (answer, status) = follower.await.unwrap();
    assert_eq!(answer.unwrap(), 42);
    assert_eq!(status, CacheStatus::Collapsed { place: LoadLocation::Remote, waited: SECOND * 2 });
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_a_flight_without_a_request_loads_by_its_own_when_it_can() {
    let store = MemoryStore::new(10);
    let held = lease(&store, 1, MINUTE).await;
    let cached = waiting(store.clone(), then_load(), &Loader::new());
    let opener = ask(&cached, 1);
    sleep(SECOND * 3).await;
    let follower = ask(&cached, 1);
    answers(vec![opener]).await;
    give_back(&store, held).await;
    let (answer, status) = follower.await.unwrap();
    assert_eq!(answer.unwrap(), 2);
    assert_eq!(status, CacheStatus::Led { stored: true });
}

async fn give_back(store: &MemoryStore, held: bellwether::store::Lease) {
    bellwether_test::StoreExt::abandon(store, held.claim).await.expect("an answer");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_with_an_error_leaves_its_request_to_the_waiters() {
    let store = MemoryStore::new(10);
    let held = lease(&store, 1, MINUTE).await;
    let cached = cached(store.clone(), &Loader::new());
    let opener = ask(&cached, 1);
    sleep(SECOND * 3).await;
    let follower = ask(&cached, 1);
    kind_of(&opener.await.unwrap().0);
    give_back(&store, held).await;
    assert_eq!(answers(vec![follower]).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_callers_that_gave_up() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let cached = waiting(store, then_load(), &Loader::new());
    answers(burst(&cached, 1, 100)).await;
    idle().await;
    assert_eq!((cached.in_flight(), bellwether_testkit::caches::tasks()), (0, 0));
}
