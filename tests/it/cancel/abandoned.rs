//! Loads that all callers have left: so many go on, the last ones.

use bellwether::{CacheErrorKind, MemoryStore, Wait};
use bellwether_testkit::caches::{
    Cached, MINUTE, answer, answers, ask, idle, is_leased, kind_of, layer, lease, tasks,
};
use bellwether_testkit::loaders::Loader;
use tokio_test::task::spawn;
use tower::{Layer, Service};

use crate::support::store::{Operation, local};

/// As many abandoned loads go on.
fn finishing(most: usize, loader: &Loader) -> Cached {
    let layer = layer(MemoryStore::new(100)).max_abandoned_loads(most).build().unwrap();
    layer.layer(loader.clone())
}

/// A load that its only caller has left.
async fn abandon(cached: &Cached, item: u64, loader: &Loader) {
    let before = loader.loads();
    let asked = ask(cached, item);
    loader.has_begun(before + 1).await;
    asked.abort();
    idle().await;
}

#[tokio::test(start_paused = true)]
async fn of_ten_thousand_abandoned_loads_so_many_go_on() {
    let loader = Loader::gated();
    let store = MemoryStore::new(20_000);
    let cached = layer(store.clone()).build().unwrap().layer(loader.clone());
    let asked: Vec<_> = (0..10_000).map(|item| ask(&cached, item)).collect();
    loader.has_begun(10_000).await;
    asked.iter().for_each(|asked| asked.abort());
    idle().await;
    let stats = cached.stats();
    assert_eq!((loader.running(), loader.dropped(), cached.in_flight()), (64, 9_936, 64));
    assert_eq!((stats.running_loads(), stats.load_times.cancelled.count()), (64, 9_936));
    let mut leased = 0;
    for item in 0..10_000 {
        leased += usize::from(is_leased(&store, item).await);
    }
    assert_eq!(leased, 64, "the others are free");
}

#[tokio::test(start_paused = true)]
async fn the_oldest_abandoned_load_is_cancelled_first() {
    let loader = Loader::gated();
    let cached = finishing(2, &loader);
    for item in [1, 2, 3] {
        abandon(&cached, item, &loader).await;
    }
    assert_eq!((loader.running(), loader.dropped()), (2, 1));
    loader.let_go(2);
    idle().await;
    loader.let_go(1);
    // The first load of 1 was cancelled, and those of 2 and 3 are stored.
    assert_eq!([answer(&cached, 2).await, answer(&cached, 3).await], [2, 3]);
    assert_eq!(answer(&cached, 1).await, 4);
}

#[tokio::test(start_paused = true)]
async fn no_caller_is_refused_while_abandoned_loads_run() {
    let loader = Loader::gated();
    let layer = layer(MemoryStore::new(100)).max_flights(3).build().unwrap();
    let cached = layer.layer(loader.clone());
    let asked: Vec<_> = (1..=3).map(|item| ask(&cached, item)).collect();
    loader.has_begun(3).await;
    asked.iter().for_each(|asked| asked.abort());
    let honest: Vec<_> = (4..=6).map(|item| ask(&cached, item)).collect();
    loader.has_begun(6).await;
    assert_eq!((loader.running(), loader.dropped()), (3, 3));
    let (refused, _) = ask(&cached, 7).await.expect("no panic");
    assert_eq!(kind_of(&refused), CacheErrorKind::Full, "these have callers");
    loader.let_go(3);
    answers(honest).await;
    idle().await;
    loader.let_go(3);
    answers((7..=9).map(|item| ask(&cached, item)).collect()).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_comes_back_keeps_its_load() {
    let loader = Loader::gated();
    let cached = finishing(1, &loader);
    abandon(&cached, 1, &loader).await;
    let back = ask(&cached, 1);
    idle().await;
    abandon(&cached, 2, &loader).await;
    assert_eq!((loader.running(), loader.dropped()), (2, 0));
    back.abort();
    idle().await;
    assert_eq!((loader.running(), loader.dropped()), (1, 1), "2 was abandoned before");
    loader.let_go(1);
    assert_eq!(answer(&cached, 1).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_joins_a_load_as_it_is_cancelled_is_answered() {
    let loader = Loader::gated();
    let cached = finishing(1, &loader);
    abandon(&cached, 1, &loader).await;
    let mut leaves = spawn(cached.clone().call(2));
    assert!(leaves.poll().is_pending());
    loader.has_begun(2).await;
    drop(leaves);
    // The task of the first load has not run since.
    let mut joins = spawn(cached.clone().call(1));
    assert!(joins.poll().is_pending());
    assert_eq!(loader.dropped(), 0);
    let joined = tokio::spawn(joins);
    loader.has_begun(3).await;
    assert_eq!(loader.dropped(), 1);
    loader.let_go(2);
    assert_eq!(joined.await.expect("no panic").expect("an answer"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_begins_after_all_callers_have_left_is_abandoned() {
    let loader = Loader::gated();
    let store = local(&MemoryStore::new(100));
    let acquiring = store.on(Operation::Acquire).nth(1).do_it_and_hold();
    let cached = layer(store).max_abandoned_loads(1).build().unwrap().layer(loader.clone());
    let left = ask(&cached, 1);
    acquiring.reached().await;
    left.abort();
    idle().await;
    acquiring.open();
    loader.has_begun(1).await;
    abandon(&cached, 2, &loader).await;
    assert_eq!((loader.running(), loader.dropped()), (1, 1));
}

/// Its answer would be for no caller: it is not stored.
#[tokio::test(start_paused = true)]
async fn a_load_without_a_lease_ends_with_its_last_caller() {
    let loader = Loader::gated();
    let store = MemoryStore::new(100);
    let _held = [lease(&store, 1, MINUTE).await, lease(&store, 2, MINUTE).await];
    let layer = layer(store).wait(Wait::fail_fast().then_load()).max_loads(1).build().unwrap();
    let cached = layer.layer(loader.clone());
    let loads = ask(&cached, 1);
    loader.has_begun(1).await;
    let queues = ask(&cached, 2);
    idle().await;
    queues.abort();
    idle().await;
    assert_eq!(cached.in_flight(), 1, "it has left the queue");
    loads.abort();
    idle().await;
    assert_eq!((loader.loads(), loader.dropped()), (1, 1));
    assert_eq!((cached.in_flight(), tasks()), (0, 0));
}

/// It does not go on, so it takes no place of those that do.
#[tokio::test(start_paused = true)]
async fn a_load_without_a_lease_cancels_no_abandoned_load() {
    let loader = Loader::gated();
    let store = MemoryStore::new(100);
    let _held = lease(&store, 2, MINUTE).await;
    let layer =
        layer(store).wait(Wait::fail_fast().then_load()).max_abandoned_loads(1).build().unwrap();
    let cached = layer.layer(loader.clone());
    abandon(&cached, 1, &loader).await;
    abandon(&cached, 2, &loader).await;
    assert_eq!((loader.running(), loader.dropped()), (1, 1));
    loader.let_go(1);
    idle().await;
    assert_eq!(answer(&cached, 1).await, 1);
}
