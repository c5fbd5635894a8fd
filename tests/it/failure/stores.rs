//! A store that fails costs coalescing across processes, and nothing else.

use std::mem;
use std::time::Duration;

use bellwether::store::StoreErrorKind;
use bellwether::{BypassReason, CacheErrorKind, CacheStatus, MemoryStore};
use bellwether_testkit::caches::{
    SECOND, answers, ask, burst, cached, idle, is_leased, key, kind_of, layer, lease, settled,
};
use bellwether_testkit::loaders::{End, Loader};
use tokio::time::{advance, sleep};
use tower::Layer;

use crate::support::store::{AtMoment as _, Faulty, Moment, Operation, UNREACHABLE, local, remote};

const MOMENTS: [Moment; 2] = [Moment::Before, Moment::After];

/// Sends a burst of ten on a cold key, with this fault of the store.
async fn burst_on(faulty: &Faulty, memory: &MemoryStore, context: &str) {
    let loader = Loader::taking(SECOND);
    let cached = cached(faulty.clone(), &loader);
    let ended = settled(burst(&cached, 1, 10)).await;
    assert!(ended.iter().all(|(answer, _)| answer.is_ok()), "{context}: {ended:?}");
    assert_eq!(loader.most_at_once(), 1, "{context}");
    idle().await;
    assert_eq!(cached.in_flight(), 0, "{context}");
    assert!(!is_leased(memory, 1).await, "{context}: its lease is left");
}

/// The store fails at its first request, at its second, and so on: each time before the operation,
/// and after it.
#[tokio::test(start_paused = true)]
async fn each_request_may_fail_and_callers_are_answered() {
    for place in [local, remote] {
        for (moment, request) in MOMENTS.into_iter().flat_map(|at| (0..8).map(move |n| (at, n))) {
            let memory = MemoryStore::new(10);
            let store = place(&memory);
            store.on_any().nth(request + 1).fails(moment);
            burst_on(&store, &memory, &format!("request {request} fails {moment:?}")).await;
            assert!(store.total_calls() < 8, "not all of them were tried");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_always_fails_is_survived() {
    for (op, moment) in [Operation::Lookup, Operation::Commit, Operation::Renew]
        .into_iter()
        .flat_map(|op| MOMENTS.map(|moment| (op, moment)))
    {
        let memory = MemoryStore::new(10);
        let store = remote(&memory);
        store.on(op).fails(moment);
        burst_on(&store, &memory, &format!("{op:?} fails {moment:?}")).await;
    }
}

/// The store grants the lease, and the reply is lost.
#[tokio::test(start_paused = true)]
async fn an_unacknowledged_lease_is_given_up_after_the_load() {
    let memory = MemoryStore::new(10);
    let store = local(&memory);
    store.on(Operation::Acquire).do_it_but_fail(UNREACHABLE);
    let cached = cached(store.clone(), &Loader::taking(SECOND));
    answers(vec![ask(&cached, 1)]).await;
    idle().await;
    assert_eq!(store.calls(Operation::Abandon), 1);
    assert!(!is_leased(&memory, 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_costs_no_answer() {
    let store = remote(&MemoryStore::new(10));
    store.on_any().fail(UNREACHABLE);
    let loader = Loader::taking(SECOND);
    let ended = settled(burst(&cached(store, &loader), 1, 100)).await;
    assert!(ended.iter().all(|(answer, _)| answer.is_ok()));
    assert_eq!(loader.most_at_once(), 1);
}

/// The lookup of the first caller fails; the others have met in a flight by then. The first may
/// come too late for their load, so there can be a second one, but no more.
#[tokio::test(start_paused = true)]
async fn a_burst_on_a_store_that_is_down_is_two_loads_at_most() {
    let store = remote(&MemoryStore::new(10));
    store.on_any().fail(UNREACHABLE);
    let loader = Loader::taking(SECOND);
    settled(burst(&cached(store, &loader), 1, 100)).await;
    assert!(loader.loads() <= 2, "{} loads", loader.loads());
}

#[tokio::test(start_paused = true)]
async fn the_status_says_that_a_caller_loaded_without_the_store() {
    let store = local(&MemoryStore::new(10));
    store.on_any().fail(UNREACHABLE);
    let (_, status) = ask(&cached(store, &Loader::new()), 1).await.unwrap();
    assert_eq!(status, CacheStatus::Bypass(BypassReason::StoreFailed));
}

#[tokio::test(start_paused = true)]
async fn a_load_that_could_not_be_stored_is_not_said_to_be() {
    let store = local(&MemoryStore::new(10));
    store.on(Operation::Commit).fail(UNREACHABLE);
    let (_, status) = ask(&cached(store, &Loader::new()), 1).await.unwrap();
    assert_eq!(status, CacheStatus::Led { stored: false });
}

#[tokio::test(start_paused = true)]
async fn a_store_that_recovers_is_used_again() {
    let store = remote(&MemoryStore::new(10));
    let cached = cached(store.clone(), &Loader::new());
    store.on_any().fail(UNREACHABLE);
    answers(vec![ask(&cached, 1)]).await;
    store.heal();
    assert_eq!(answers(vec![ask(&cached, 1), ask(&cached, 1)]).await, [2, 2]);
    assert_eq!(answers(vec![ask(&cached, 1)]).await, [2]);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_fails_on_a_store_that_is_down_is_shared() {
    let store = local(&MemoryStore::new(10));
    store.on_any().fail(UNREACHABLE);
    let loader = Loader::taking(SECOND);
    loader.ends_by(End::Fail);
    let ended = settled(burst(&cached(store, &loader), 1, 100)).await;
    assert!(ended.iter().all(|(answer, _)| answer.as_ref().is_err_and(|e| e.load().is_some())));
    assert_eq!(loader.loads(), 2);
}

/// The lease of a failed load could not be given up: it is left to lapse.
#[tokio::test(start_paused = true)]
async fn a_lease_that_could_not_be_given_up_lapses() {
    let memory = MemoryStore::new(10);
    let store = local(&memory);
    store.on(Operation::Abandon).fail(UNREACHABLE);
    let loader = Loader::new();
    loader.ends_by(End::Fail);
    let failing = layer(store).lease(SECOND).build().unwrap().layer(loader);
    settled(vec![ask(&failing, 1)]).await;
    idle().await;
    assert!(is_leased(&memory, 1).await, "or there is nothing to see here");
    advance(SECOND).await;
    assert!(!is_leased(&memory, 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_once_is_made_up_for() {
    let memory = MemoryStore::new(10);
    let store = local(&memory);
    // The first request is for the lease, the second renews it.
    store.on_any().nth(2).fail(UNREACHABLE);
    let layer = layer(store.clone()).lease(SECOND).build().unwrap();
    let _leads = ask(&layer.layer(Loader::taking(SECOND * 10)), 1);
    sleep(SECOND * 5).await;
    assert!(store.calls(Operation::Renew) > 2);
    assert!(is_leased(&memory, 1).await);
}

/// So that they go to a server together.
#[tokio::test(start_paused = true)]
async fn loads_that_began_one_after_the_other_renew_their_leases_at_one_moment() {
    let store = local(&MemoryStore::new(10));
    let layer = layer(store.clone()).lease(SECOND * 3).build().unwrap();
    let cached = layer.layer(Loader::taking(SECOND * 10));
    for sku in 0..5 {
        drop(ask(&cached, sku));
        sleep(SECOND / 500).await;
    }
    let (mut renewed, mut at_each_moment) = (0, Vec::new());
    while at_each_moment.len() < 3 {
        sleep(SECOND / 1000).await;
        let before = mem::replace(&mut renewed, store.calls(Operation::Renew));
        at_each_moment.extend(Some(renewed - before).filter(|count| *count > 0));
    }
    assert_eq!(at_each_moment, [5; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_request_fails_loads_without_a_lease() {
    let memory = MemoryStore::new(10);
    let _held = lease(&memory, 1, SECOND * 60).await;
    let store = local(&memory).without_push();
    // The first request is answered: busy.
    store.on_any().nth(2).fail(UNREACHABLE);
    let (answer, status) = ask(&cached(store, &Loader::new()), 1).await.unwrap();
    assert_eq!(answer.unwrap(), 1);
    assert_eq!(status, CacheStatus::Bypass(BypassReason::StoreFailed));
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_that_failed_is_an_error_that_names_the_key_and_not_its_text() {
    let store = local(&MemoryStore::new(10));
    store.on_any().fail(UNREACHABLE);
    let handle = layer(store).build().unwrap().handle();
    for ended in [handle.invalidate(&key(4711)).await, handle.expire(&key(4711)).await] {
        let error = ended.unwrap_err();
        assert_eq!(error.kind(), CacheErrorKind::Store(StoreErrorKind::Unreachable));
        let message = error.to_string();
        assert!(message.contains("item#") && !message.contains("4711"), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_does_not_hang_callers_with_a_wait_limit() {
    let store = local(&MemoryStore::new(10));
    let _never_opened = store.on(Operation::Acquire).nth(1).hold();
    let asked = ask(&cached(store, &Loader::new()), 1);
    let (answer, _) = asked.await.unwrap();
    assert_eq!(kind_of(&answer), CacheErrorKind::WaitTimedOut);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_does_not_hang_the_load() {
    let store = local(&MemoryStore::new(10));
    let _never_opened = store.on(Operation::Renew).nth(1).hold();
    let layer = layer(store).lease(Duration::from_millis(300)).build().unwrap();
    let cached = layer.layer(Loader::taking(SECOND * 4));
    assert_eq!(answers(vec![ask(&cached, 1)]).await, [1]);
}

/// Nor is it loaded for ever, however many ask.
#[tokio::test(start_paused = true)]
async fn a_load_that_always_outlives_its_lease_is_stored_all_the_same() {
    let memory = MemoryStore::new(10);
    let loader = Loader::taking(SECOND);
    let fleet = [(); 4].map(|()| {
        let store = local(&memory);
        store.on(Operation::Renew).fail(UNREACHABLE);
        let layer = layer(store).lease(SECOND / 4).build().unwrap();
        layer.layer(loader.clone())
    });
    let mut asked = Vec::new();
    for _ in 0..20 {
        asked.extend(fleet.iter().map(|process| ask(process, 1)));
        sleep(SECOND / 10).await;
    }
    answers(asked).await;
    assert!(loader.loads() <= 4, "one for each time that the lease lapsed: {}", loader.loads());
    for process in &fleet {
        let (_, status) = ask(process, 1).await.unwrap();
        assert!(matches!(status, CacheStatus::Hit { .. }), "{status:?}");
    }
}

/// As a large one may, which queues behind others of its size.
#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_while_its_commit_is_under_way() {
    let memory = MemoryStore::new(10);
    let loader = Loader::taking(SECOND / 10);
    let [leads, waits] = [(); 2].map(|()| local(&memory));
    leads.on(Operation::Commit).delay(SECOND * 20);
    let [leads, waits] =
        [leads, waits].map(|store| layer(store).build().unwrap().layer(loader.clone()));
    let led = ask(&leads, 1);
    sleep(SECOND / 20).await;
    let waited = ask(&waits, 1);
    assert_eq!(answers(vec![led, waited]).await, [1, 1]);
    assert_eq!(loader.loads(), 1);
}
