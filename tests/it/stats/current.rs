//! What is under way at a moment: it rises, and falls to nothing.

use bellwether::stats::CurrentStats;
use bellwether::{MemoryStore, Wait};
use bellwether_testkit::caches::{
    MINUTE, SECOND, answers, ask, burst, cached, idle, layer, remembering_layer, settled,
};
use bellwether_testkit::loaders::{End, Loader};
use tokio::time::sleep;
use tower::Layer;

use crate::support::store::{UNREACHABLE, local};

#[tokio::test(start_paused = true)]
async fn flights_and_waiters_are_there_until_they_are_answered() {
    let loader = Loader::gated();
    let layer = layer(MemoryStore::new(10)).build().unwrap();
    let cached = layer.layer(loader.clone());
    let all = [burst(&cached, 1, 10), burst(&cached, 2, 5)].into_iter().flatten().collect();
    loader.has_begun(2).await;
    for current in [layer.stats().current, layer.handle().stats().current] {
        assert_eq!((current.flights, current.waiters), (2, 15));
    }
    loader.let_go(2);
    answers(all).await;
    idle().await;
    assert_eq!(cached.stats().current, CurrentStats::default());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_waits_no_more() {
    let loader = Loader::gated();
    let cached = cached(MemoryStore::new(10), &loader);
    let mut all = burst(&cached, 1, 10);
    loader.has_begun(1).await;
    all.drain(..4).for_each(|caller| caller.abort());
    idle().await;
    assert_eq!(cached.stats().current.waiters, 6);
    loader.let_go(1);
    answers(all).await;
}

#[tokio::test(start_paused = true)]
async fn uncached_loads_queue_for_a_permit_and_leave_the_queue() {
    let broken = local(&MemoryStore::new(10));
    broken.on_any().fail(UNREACHABLE);
    let loader = Loader::gated();
    let bounded = layer(broken).max_loads(1).wait(Wait::at_most(SECOND)).build().unwrap();
    let cached = bounded.layer(loader.clone());
    let first = ask(&cached, 1);
    loader.has_begun(1).await;
    let queued = vec![ask(&cached, 2), ask(&cached, 3)];
    idle().await;
    assert_eq!(cached.stats().current.queued_loads, 2);
    settled(queued).await;
    idle().await;
    assert_eq!(cached.stats().current.queued_loads, 0, "their waits have run out");
    loader.let_go(1);
    answers(vec![first]).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_fails_until_it_is_loaded_or_its_window_is_over() {
    let loader = Loader::new();
    let cached = remembering_layer(MemoryStore::new(10)).build().unwrap().layer(loader.clone());
    loader.ends_by(End::Fail);
    for key in [1, 2, 2] {
        settled(vec![ask(&cached, key)]).await;
    }
    let failing = || cached.stats().current.failing_keys;
    assert_eq!(failing(), 1, "the failure of key 1 is not confirmed");
    sleep(MINUTE).await;
    assert_eq!(failing(), 0, "the window is over");
}
