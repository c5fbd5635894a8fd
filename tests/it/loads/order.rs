//! Which loads go first.

use bellwether::{Lifetimes, MemoryStore};
use bellwether_testkit::caches::{
    JSON, MINUTE, SECOND, answer, answers, ask, commit, idle, layer, lease, put_for,
};
use bellwether_testkit::loaders::Loader;
use tokio::time::sleep;
use tower::Layer;

use crate::support::store::{losing_push, remote};

/// The order in which keys were loaded: the loader numbers its answers.
#[tokio::test(start_paused = true)]
async fn keys_are_loaded_in_the_order_of_their_callers_and_refreshes_last() {
    let memory = MemoryStore::new(100);
    let stale = Lifetimes::fresh_for(SECOND).stale_while_revalidate(MINUTE);
    put_for(&memory, 9, "42", JSON, stale).await;
    sleep(SECOND * 2).await;
    let loader = Loader::gated();
    let cached = layer(remote(&memory)).max_loads(1).build().unwrap().layer(loader.clone());
    let mut asked = vec![ask(&cached, 0)];
    loader.has_begun(1).await;
    assert_eq!(answer(&cached, 9).await, 42, "its refresh queues");
    for item in 1..4 {
        asked.push(ask(&cached, item));
        idle().await;
    }
    loader.let_go(5);
    assert_eq!(answers(asked).await, [1, 2, 3, 4]);
    idle().await;
    assert_eq!(answer(&cached, 9).await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_a_caller_waits_for_is_none_any_more() {
    let memory = MemoryStore::new(100);
    let stale = Lifetimes::fresh_for(SECOND).stale_while_revalidate(SECOND * 2);
    put_for(&memory, 9, "42", JSON, stale).await;
    sleep(SECOND * 2).await;
    let loader = Loader::gated();
    let cached = layer(remote(&memory)).max_loads(1).build().unwrap().layer(loader.clone());
    let first = ask(&cached, 0);
    loader.has_begun(1).await;
    assert_eq!(answer(&cached, 9).await, 42);
    sleep(SECOND * 2).await;
    let waits = ask(&cached, 9);
    idle().await;
    let later = ask(&cached, 1);
    idle().await;
    loader.let_go(3);
    assert_eq!(answers(vec![first, waits, later]).await, [1, 2, 3]);
}

/// It asks the store again, and no load keeps it from that for longer than the next permit takes.
#[tokio::test(start_paused = true)]
async fn a_key_that_waited_for_another_process_goes_first() {
    let memory = MemoryStore::new(100);
    let loader = Loader::taking(SECOND);
    let store = losing_push(remote(&memory));
    let cached = layer(store).max_loads(1).build().unwrap().layer(loader.clone());
    let held = lease(&memory, 9, SECOND / 2).await;
    let waits = ask(&cached, 9);
    idle().await;
    let asked: Vec<_> = (0..5).map(|item| ask(&cached, item)).collect();
    sleep(SECOND).await;
    drop(held);
    assert_eq!(answers(vec![waits]).await, [2], "the other process has died");
    answers(asked).await;
}

/// It needs no permit to see that.
#[tokio::test(start_paused = true)]
async fn a_key_that_waited_for_another_process_is_answered_while_the_bound_is_reached() {
    let memory = MemoryStore::new(100);
    let loader = Loader::gated();
    let store = losing_push(remote(&memory));
    let cached = layer(store).max_loads(1).build().unwrap().layer(loader.clone());
    let held = lease(&memory, 9, MINUTE).await;
    let waits = ask(&cached, 9);
    idle().await;
    let _fills = ask(&cached, 1);
    loader.has_begun(1).await;
    commit(&memory, held, "42").await;
    assert_eq!(answers(vec![waits]).await, [42]);
}
