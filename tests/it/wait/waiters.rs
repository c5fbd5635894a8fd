//! How long a waiter waits, and how soon it is notified.

use std::time::Duration;

use bellwether::{CacheErrorKind, MemoryStore, Wait};
use bellwether_testkit::caches::{
    MINUTE, NO_TIME, SECOND, answers, ask, burst, cached, idle, key, kind_of, lease, settled,
};
use bellwether_testkit::loaders::{End, Loader};
use tokio::time::{Instant, advance, sleep};
use tower::Service;

use super::{error_after, waiting};
use crate::support::store::{Faulty, Operation, local, losing_push, remote};

fn five_seconds() -> Wait {
    Wait::at_most(SECOND * 5)
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_fails_fast_does_not_wait_for_a_load_in_its_process() {
    let loader = Loader::gated();
    let hasty = waiting(MemoryStore::new(10), Wait::fail_fast(), &loader);
    let _leads = ask(&hasty, 1);
    loader.has_begun(1).await;
    let ended = error_after(ask(&hasty, 1), Instant::now()).await;
    assert_eq!(ended, (CacheErrorKind::Contended, NO_TIME));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_fails_fast_does_not_wait_for_a_load_in_another_process() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let hasty = waiting(store, Wait::fail_fast(), &Loader::new());
    let ended = error_after(ask(&hasty, 1), Instant::now()).await;
    assert_eq!(ended, (CacheErrorKind::Contended, NO_TIME));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_fails_fast_waits_for_its_own_load() {
    let loader = Loader::taking(SECOND * 20);
    let hasty = waiting(MemoryStore::new(10), Wait::fail_fast(), &loader);
    assert_eq!(answers(vec![ask(&hasty, 1)]).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn one_of_many_callers_that_fail_fast_together_is_answered() {
    let memory = MemoryStore::new(10);
    for (item, store) in [local(&memory), remote(&memory)].into_iter().enumerate() {
        let hasty = waiting(store, Wait::fail_fast(), &Loader::taking(SECOND));
        let mut ended = settled(burst(&hasty, item as u64, 100)).await;
        ended.retain(|(answer, _)| answer.is_err());
        assert_eq!(ended.len(), 99);
        assert!(ended.iter().all(|(answer, _)| kind_of(answer) == CacheErrorKind::Contended));
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_fails_fast_leaves_the_load_to_the_waiters() {
    let loader = Loader::taking(SECOND);
    let store = MemoryStore::new(10);
    let patient = ask(&cached(store.clone(), &loader), 1);
    idle().await;
    settled(burst(&waiting(store, Wait::fail_fast(), &loader), 1, 10)).await;
    assert_eq!(answers(vec![patient]).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_tries_lasts_as_many_intervals() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let brisk = waiting(store, Wait::tries(3, Duration::from_millis(50)), &Loader::new());
    let ended = error_after(ask(&brisk, 1), Instant::now()).await;
    assert_eq!(ended, (CacheErrorKind::WaitTimedOut, Duration::from_millis(150)));
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_tries_asks_as_often_even_without_push_messages() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let store = remote(&store).without_push();
    let brisk = waiting(store.clone(), Wait::tries(3, Duration::from_millis(50)), &Loader::new());
    settled(vec![ask(&brisk, 1)]).await;
    // The miss that it began with, and two or three more: the last falls together with the end.
    assert!(
        (3..=4).contains(&store.calls(Operation::Acquire)),
        "{}",
        store.calls(Operation::Acquire)
    );
}

/// The lease of the load is renewed each second, so no pause is longer than what is left of it.
#[tokio::test(start_paused = true)]
async fn a_process_that_is_told_of_changes_asks_less_often_the_longer_it_waits() {
    let (memory, loader) = (MemoryStore::new(10), Loader::taking(SECOND * 30));
    let leads = ask(&cached(memory.clone(), &loader), 1);
    idle().await;
    let store = remote(&memory);
    let waits = ask(&waiting(store.clone(), Wait::at_most(MINUTE), &loader), 1);
    assert_eq!(answers(vec![leads, waits]).await, [1; 2]);
    let asked = store.calls(Operation::Acquire);
    assert!((10..=25).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_five_seconds_ends_after_them_with_an_error() {
    let loader = Loader::gated();
    let cached = waiting(MemoryStore::new(10), five_seconds(), &loader);
    let _leads = ask(&cached, 1);
    loader.has_begun(1).await;
    let ended = error_after(ask(&cached, 1), Instant::now()).await;
    assert_eq!(ended, (CacheErrorKind::WaitTimedOut, SECOND * 5));
}

#[tokio::test(start_paused = true)]
async fn a_leader_waits_for_its_own_load_past_its_wait_limit() {
    for wait in [Wait::at_most(SECOND), Wait::at_most(SECOND).then_load()] {
        let loader = Loader::taking(SECOND * 20);
        let cached = waiting(MemoryStore::new(10), wait, &loader);
        assert_eq!(answers(vec![ask(&cached, 1)]).await, [1]);
        assert_eq!(loader.loads(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_begins_at_the_first_poll() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let called = waiting(store, five_seconds(), &Loader::new()).call(1);
    advance(SECOND * 30).await;
    let began = Instant::now();
    assert_eq!(kind_of(&called.await), CacheErrorKind::WaitTimedOut);
    assert_eq!(began.elapsed(), SECOND * 5);
}

/// A request first waits for its lookup, which counts for its wait limit.
#[tokio::test(start_paused = true)]
async fn a_slow_lookup_is_part_of_the_wait() {
    let memory = MemoryStore::new(10);
    let _held = lease(&memory, 1, MINUTE).await;
    let store = remote(&memory);
    let looking = store.on(Operation::Lookup).nth(1).do_it_and_hold();
    let patient = waiting(store, five_seconds(), &Loader::new());
    let asked = ask(&patient, 1);
    let began = Instant::now();
    sleep(SECOND * 3).await;
    looking.open();
    assert_eq!(error_after(asked, began).await, (CacheErrorKind::WaitTimedOut, SECOND * 5));
}

/// It joins a load here after that has begun. That load is superseded, so it makes another lookup,
/// and finds that another process loads.
#[tokio::test(start_paused = true)]
async fn a_wait_does_not_start_again_with_another_flight() {
    let loader = Loader::gated();
    let store = MemoryStore::new(10);
    let cached = waiting(store.clone(), five_seconds(), &loader);
    let _leads = ask(&cached, 1);
    loader.has_begun(1).await;
    let waiter = ask(&cached, 1);
    let began = Instant::now();
    sleep(SECOND * 3).await;
    layer_handle_invalidates(&store).await;
    let _held = lease(&store, 1, MINUTE).await;
    loader.let_go(1);
    assert_eq!(error_after(waiter, began).await, (CacheErrorKind::WaitTimedOut, SECOND * 5));
}

async fn layer_handle_invalidates(store: &MemoryStore) {
    bellwether_testkit::caches::layer(store.clone())
        .build()
        .unwrap()
        .handle()
        .invalidate(&key(1))
        .await
        .expect("it works");
}

#[tokio::test(start_paused = true)]
async fn waiters_of_other_processes_are_answered_at_the_moment_the_load_ends() {
    let loader = Loader::taking(SECOND);
    let store = MemoryStore::new(10);
    let began = Instant::now();
    let fleet = [(); 4].map(|()| cached(store.clone(), &loader));
    let asked = fleet.iter().flat_map(|process| burst(process, 1, 10)).collect();
    answers(asked).await;
    assert_eq!(began.elapsed(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn waiters_are_notified_at_once_of_a_load_that_failed_in_another_process() {
    let store = MemoryStore::new(10);
    let failing = Loader::taking(SECOND);
    failing.ends_by(End::Fail);
    let began = Instant::now();
    let _fails = ask(&cached(store.clone(), &failing), 1);
    idle().await;
    assert_eq!(answers(vec![ask(&cached(store, &Loader::new()), 1)]).await, [1]);
    assert_eq!(began.elapsed(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_without_push_messages_is_at_most_a_quarter_of_a_second_late() {
    for round in 0..50 {
        let late = lateness(Faulty::without_push, SECOND + STEP * round).await;
        assert!(late <= Duration::from_millis(250), "{late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn in_the_first_second_a_waiter_whose_message_is_lost_is_at_most_a_quarter_of_a_second_late()
{
    for round in 0..50 {
        let late = lateness(losing_push, SECOND / 2 + STEP * round).await;
        assert!(late <= Duration::from_millis(250), "{late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn later_a_waiter_whose_message_is_lost_is_late_by_at_most_a_fifth_of_its_wait() {
    for round in 0..50 {
        let takes = SECOND * 2 + STEP * 20 * round;
        let late = lateness(losing_push, takes).await;
        assert!(late <= (takes + late) / 5, "{late:?} after {takes:?}");
    }
}

/// By how much loads differ, so that they end at different moments of the pauses.
const STEP: Duration = Duration::from_millis(7);

/// How long after a load in another process, which takes this long, a waiter has the answer.
async fn lateness(messages: fn(Faulty) -> Faulty, takes: Duration) -> Duration {
    let store = MemoryStore::new(10);
    let leads = ask(&cached(store.clone(), &Loader::taking(takes)), 1);
    let waiter = ask(&cached(messages(remote(&store)), &Loader::new()), 1);
    answers(vec![leads]).await;
    let ended = Instant::now();
    answers(vec![waiter]).await;
    ended.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_died_costs_no_more_than_its_lease() {
    let store = MemoryStore::new(10);
    let began = Instant::now();
    drop(lease(&store, 1, SECOND * 2).await);
    assert_eq!(answers(vec![ask(&cached(store, &Loader::new()), 1)]).await, [1]);
    assert!(began.elapsed() <= SECOND * 2 + Duration::from_millis(5), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn waiters_that_come_one_after_the_other_are_answered_by_one_request() {
    let loader = Loader::taking(SECOND);
    let memory = MemoryStore::new(10);
    let _leads = ask(&cached(memory.clone(), &loader), 1);
    let store = local(&memory);
    let process = cached(store.clone(), &loader);
    let mut waiters = Vec::new();
    for _ in 0..20 {
        waiters.push(ask(&process, 1));
        idle().await;
    }
    answers(waiters).await;
    // All were requests for the lease, and the last of them found the answer for all waiters.
    assert_eq!(store.total_calls(), store.calls(Operation::Acquire));
}

#[tokio::test(start_paused = true)]
async fn a_hundred_waiters_ask_the_store_no_more_often_than_one() {
    let store = MemoryStore::new(10);
    let _held = lease(&store, 1, MINUTE).await;
    let requests = [1, 100].map(|waiters| (waiters, remote(&store)));
    let mut asked = Vec::new();
    for (waiters, store) in requests {
        // Fixed pauses, so that both ask at the same moments.
        let brisk = waiting(store.clone(), Wait::tries(20, SECOND), &Loader::new());
        settled(burst(&brisk, 1, waiters)).await;
        asked.push(store.total_calls());
    }
    // One more at most: the last pause ends together with the wait.
    assert!(asked[1] <= asked[0] + 1, "{asked:?}");
}
