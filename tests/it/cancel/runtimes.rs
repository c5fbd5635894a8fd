//! Requests without a runtime, and requests whose runtime is shut down.

use std::time::Duration;

use bellwether::{CacheErrorKind, MemoryStore, Wait};
use bellwether_testkit::caches::{MINUTE, SECOND, answer, ask, cached, kind_of, layer, lease};
use bellwether_testkit::loaders::Loader;
use futures_util::FutureExt;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use tokio_test::task::spawn;
use tower::{Layer, Service};

use crate::support::store::local;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime")
}

#[test]
fn a_miss_outside_of_a_runtime_is_an_error() {
    let answer = cached(MemoryStore::new(10), &Loader::new()).call(1).now_or_never();
    assert_eq!(kind_of(&answer.expect("an answer at once")), CacheErrorKind::NoRuntime);
}

#[test]
fn a_miss_outside_of_a_runtime_leaves_nothing() {
    let mut cached = cached(MemoryStore::new(10), &Loader::new());
    drop(cached.call(1).now_or_never());
    assert_eq!(cached.in_flight(), 0);
    assert_eq!(runtime().block_on(answer(&cached, 1)), 1);
}

/// A thread without a runtime asks for a key that a runtime is loading. It cannot open a flight,
/// and it cannot join one either: its wait would need a timer.
#[tokio::test]
async fn to_join_a_load_from_outside_of_a_runtime_is_an_error() {
    let loader = Loader::gated();
    let mut cached = cached(MemoryStore::new(10), &loader);
    let _leads = ask(&cached, 1);
    loader.has_begun(1).await;
    let outside = std::thread::spawn(move || cached.call(1).now_or_never());
    let answer = outside.join().expect("no panic").expect("an answer at once");
    assert_eq!(kind_of(&answer), CacheErrorKind::NoRuntime);
}

/// It began to wait in a runtime, and is polled without one when its wait is over. Its uncached
/// load would need a task.
#[test]
fn to_give_up_outside_of_a_runtime_is_an_error() {
    let store = MemoryStore::new(10);
    let runtime = runtime();
    let wait = Wait::at_most(SECOND).then_load();
    let mut cached = layer(store.clone()).wait(wait).build().unwrap().layer(Loader::new());
    let mut request = spawn(cached.call(1));
    let _held = runtime.block_on(async {
        let held = lease(&store, 1, MINUTE).await;
        assert!(request.poll().is_pending());
        tokio::time::sleep(SECOND * 2).await;
        held
    });
    let answer = request.now_or_never().expect("an answer at once");
    assert_eq!(kind_of(&answer), CacheErrorKind::NoRuntime);
}

/// The task of its flight was dropped before it had begun. The caller was sent back to the store,
/// still had its request, and opened another flight: within one poll, and without end.
#[test]
fn a_miss_in_a_runtime_that_has_gone_down_is_an_error() {
    let gone = runtime();
    let handle = gone.handle().clone();
    drop(gone);
    let _inside = handle.enter();
    let store = local(&MemoryStore::new(10));
    let answer = cached(store, &Loader::new()).call(1).now_or_never();
    assert_eq!(kind_of(&answer.expect("an answer at once")), CacheErrorKind::LoadLost);
}

#[test]
fn a_caller_that_outlives_the_runtime_of_its_load_has_an_error() {
    let loader = Loader::gated();
    let gone = runtime();
    let mut request = spawn(cached(MemoryStore::new(10), &loader).call(1));
    gone.block_on(async {
        assert!(request.poll().is_pending());
        loader.has_begun(1).await;
    });
    drop(gone);
    assert!(request.is_woken());
    let answer = request.now_or_never().expect("an answer at once");
    assert_eq!(kind_of(&answer), CacheErrorKind::LoadLost);
}

#[test]
fn a_waiter_of_a_load_whose_runtime_went_down_loads_in_its_own() {
    let loader = Loader::gated();
    let gone = runtime();
    let alive = runtime();
    let store = MemoryStore::new(10);
    let cached = layer(store).lease(SECOND).build().unwrap().layer(loader.clone());
    gone.block_on(async {
        let _leads = ask(&cached, 1);
        loader.has_begun(1).await;
    });
    let mut waits = spawn(cached.clone().call(1));
    let inside = alive.enter();
    assert!(waits.poll().is_pending());
    drop(inside);
    drop(gone);
    loader.let_go(1);
    assert_eq!(alive.block_on(waits).unwrap(), 2);
}

#[test]
fn a_runtime_that_goes_down_leaves_the_key_free_for_its_process() {
    let store = MemoryStore::new(10);
    let loader = Loader::gated();
    let gone = runtime();
    let cached = layer(store).build().unwrap().layer(loader.clone());
    gone.block_on(async {
        let _leads = ask(&cached, 1);
        loader.has_begun(1).await;
    });
    drop(gone);
    loader.let_go(1);
    runtime().block_on(async {
        let began = Instant::now();
        assert_eq!(answer(&cached, 1).await, 2);
        assert!(began.elapsed() <= Duration::from_millis(5), "{:?}", began.elapsed());
    });
}

#[test]
fn a_runtime_that_goes_down_drops_its_loads() {
    let loader = Loader::gated();
    let gone = runtime();
    let cached = cached(MemoryStore::new(10), &loader);
    gone.block_on(async {
        let _leads = ask(&cached, 1);
        loader.has_begun(1).await;
    });
    drop(gone);
    assert_eq!((loader.dropped(), cached.in_flight()), (1, 0));
}
