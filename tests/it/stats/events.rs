//! Waits, leases, commits, refreshes, limits, changes and stores are counted.

use bellwether::store::MemoryOptions;
use bellwether::{Lifetimes, MemoryStore, Wait};
use bellwether_test::StoreExt as _;
use bellwether_testkit::caches::{
    JSON, MINUTE, SECOND, answer, answers, ask, burst, cached, commit, idle, key, layer, lease,
    put_for, settled,
};
use bellwether_testkit::loaders::{End, Loader};
use tokio::time::sleep;
use tower::Layer;

use crate::support::store::{Operation, UNREACHABLE, local, remote};

#[tokio::test(start_paused = true)]
async fn a_wake_by_a_push_and_one_by_a_pause_are_told_apart() {
    for (is_told, pushes) in [(true, 1), (false, 0)] {
        let memory = MemoryStore::new(10);
        let other = lease(&memory, 1, MINUTE).await;
        let store = remote(&memory);
        let store = if is_told { store } else { store.without_push() };
        let cached = layer(store).wait(Wait::at_most(MINUTE)).build().unwrap().layer(Loader::new());
        let asked = burst(&cached, 1, 10);
        idle().await;
        commit(&memory, other, "42").await;
        answers(asked).await;
        let wakes = cached.stats().wakes;
        assert_eq!((wakes.push, wakes.pause > 0), (pushes, !is_told), "{wakes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_no_caller_is_left_for_is_abandoned() {
    let memory = MemoryStore::new(10);
    let _held = lease(&memory, 1, MINUTE).await;
    let cached = cached(remote(&memory), &Loader::new());
    let asked = ask(&cached, 1);
    idle().await;
    asked.abort();
    idle().await;
    let stats = cached.stats();
    assert_eq!((stats.wakes.abandoned, stats.leases.busy), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn leases_are_counted_when_granted_renewed_and_lost() {
    let memory = MemoryStore::new(10);
    let cached = layer(memory.clone()).build().unwrap().layer(Loader::taking(SECOND * 3));
    let asked = ask(&cached, 1);
    sleep(SECOND * 2).await;
    let leases = cached.stats().leases;
    assert_eq!((leases.granted, leases.lost), (1, 0));
    assert!(leases.renewed > 0, "{leases:?}");
    memory.invalidate(key(1)).await.unwrap();
    answers(vec![asked]).await;
    let stats = cached.stats();
    assert_eq!(stats.leases.lost, 1);
    assert_eq!((stats.commits.stored, stats.commits.superseded), (0, 1));
    assert_eq!(stats.requests.led_unstored, 1);
}

#[tokio::test(start_paused = true)]
async fn a_commit_without_an_answer_is_unacknowledged() {
    let store = local(&MemoryStore::new(10));
    store.on(Operation::Commit).do_it_but_fail(UNREACHABLE);
    let cached = cached(store, &Loader::new());
    answer(&cached, 1).await;
    let commits = cached.stats().commits;
    assert_eq!((commits.stored, commits.unacknowledged), (0, 1));
}

/// Callers get `Ok` for as long as the stale window lasts, so only this tells.
#[tokio::test(start_paused = true)]
async fn a_failing_refresh_is_counted_though_no_caller_notices() {
    for callers in [1, 2] {
        let memory = MemoryStore::new(10);
        let lifetimes = Lifetimes::fresh_for(SECOND).stale_while_revalidate(MINUTE);
        put_for(&memory, 1, "42", JSON, lifetimes).await;
        sleep(SECOND).await;
        let loader = Loader::new();
        loader.ends_by(End::Fail);
        let layer = layer(remote(&memory)).stale_while_revalidate(MINUTE).build().unwrap();
        let cached = layer.layer(loader.clone());
        let mut stale = answers(burst(&cached, 1, callers)).await;
        idle().await;
        loader.ends_by(End::Answer);
        stale.extend(answers(burst(&cached, 1, 1)).await);
        idle().await;
        assert_eq!(stale, vec![42; callers + 1]);
        let refreshes = cached.stats().refreshes;
        assert_eq!((refreshes.failed, refreshes.succeeded), (1, 1), "{callers}");
        assert_eq!(cached.stats().requests.failed(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn each_limit_counts_the_callers_that_it_refuses() {
    let loader = Loader::gated();
    let bounded = layer(MemoryStore::new(10)).max_waiters(3).max_flights(1).build().unwrap();
    let cached = bounded.layer(loader.clone());
    let within = burst(&cached, 1, 3);
    loader.has_begun(1).await;
    settled(vec![ask(&cached, 1), ask(&cached, 1), ask(&cached, 2)]).await;
    let refused = cached.stats().refused;
    assert_eq!((refused.waiters, refused.flights, refused.loads), (2, 1, 0));
    assert_eq!(cached.stats().requests.failed_full, 3);
    loader.let_go(1);
    answers(within).await;

    let broken = local(&MemoryStore::new(10));
    broken.on_any().fail(UNREACHABLE);
    let loader = Loader::gated();
    let bounded = layer(broken).max_loads(1).wait(Wait::at_most(SECOND)).build().unwrap();
    let cached = bounded.layer(loader.clone());
    let first = ask(&cached, 1);
    loader.has_begun(1).await;
    settled(burst(&cached, 2, 5)).await;
    assert_eq!(cached.stats().refused.loads, 5);
    loader.let_go(1);
    answers(vec![first]).await;
}

#[tokio::test(start_paused = true)]
async fn changes_are_counted_by_their_result() {
    let store = local(&MemoryStore::new(10));
    let layer = layer(store.clone()).build().unwrap();
    let handle = layer.handle();
    for _ in 0..2 {
        handle.invalidate(&key(1)).await.unwrap();
    }
    handle.expire(&key(1)).await.unwrap();
    store.on_any().fail(UNREACHABLE);
    handle.invalidate(&key(1)).await.unwrap_err();
    let changes = layer.stats().invalidations;
    assert_eq!((changes.invalidated, changes.expired, changes.failed), (2, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_layer_its_services_and_its_handles_share_their_statistics() {
    let named = layer(MemoryStore::new(10)).name("catalog").build().unwrap();
    assert!(format!("{named:?}").contains("\"catalog\""), "{named:?}");
    let service = named.layer(Loader::new());
    let over_service = service.handle();
    answer(&service.clone(), 1).await;
    let all = [named.stats(), named.clone().stats(), named.handle().stats(), service.stats()];
    for stats in all.into_iter().chain([over_service.stats()]) {
        assert_eq!((stats, stats.requests.total()), (all[0], 1));
    }
    let other = layer(MemoryStore::new(10)).name("catalog").build().unwrap();
    assert_eq!(other.stats().requests.total(), 0, "the same name, another layer");
}

#[tokio::test(start_paused = true)]
async fn a_memory_store_counts_its_entries_and_evictions() {
    let store = MemoryStore::new(MemoryOptions::new(2));
    let cached = cached(store.clone(), &Loader::new());
    for item in 0..5 {
        answer(&cached, item).await;
    }
    let stats = store.stats();
    assert_eq!((stats.entries, stats.evictions), (2, 3));
    assert!((2 * 640..2 * 1_000).contains(&stats.bytes), "{}", stats.bytes);
    sleep(MINUTE * 2).await;
    for item in 5..7 {
        answer(&cached, item).await;
    }
    assert_eq!(store.stats().evictions, 3, "entries that have expired are not evicted");
}
