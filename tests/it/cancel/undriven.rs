//! A flight whose runtime is not driven blocks its key for no other runtime.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use bellwether::store::Store;
use bellwether::{CacheStatus, Lifetimes, MemoryStore, StaleReason, Wait};
use bellwether_testkit::caches::{
    Cached, JSON, MINUTE, answers, ask, burst, cached, commit, layer, lease, put_for,
};
use bellwether_testkit::loaders::Loader;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;
use tower::{Layer, Service};

use crate::support::store::remote;

const LEASE: Duration = Duration::from_millis(400);

/// Far less than callers wait, and more than a busy machine adds to a lease.
const SOON: Duration = Duration::from_secs(10);

/// A cache whose callers wait for a minute.
fn patient(store: impl Store, loader: &Loader) -> Cached {
    let layer = layer(store).lease(LEASE).wait(Wait::at_most(MINUTE));
    layer.build().expect("options").layer(loader.clone())
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Polls what `begin` spawns until it says that it has begun, and does not drive its runtime any more
/// until the sender is dropped.
fn stalled<F>(begin: F) -> (Sender<()>, thread::JoinHandle<()>)
where
    F: AsyncFnOnce() + Send + 'static,
{
    let (driven, until) = channel::<()>();
    let (begun, has_begun) = channel();
    let thread = thread::spawn(move || {
        let runtime = runtime();
        runtime.block_on(begin());
        begun.send(()).expect("a test that waits");
        _ = until.recv();
        runtime.block_on(async { tokio::task::yield_now().await });
    });
    has_begun.recv().expect("it begins");
    (driven, thread)
}

/// Callers of another runtime, which have their answers soon.
fn others(cached: &Cached, after: Duration) -> Vec<usize> {
    let began = Instant::now();
    let answered = runtime().block_on(async {
        sleep(after).await;
        answers(burst(cached, 1, 10)).await
    });
    println!("answered after {:?}, a lease is {LEASE:?}", began.elapsed().saturating_sub(after));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    answered
}

#[test]
fn a_refresh_in_a_runtime_that_is_not_driven_blocks_no_key() {
    for is_remote in [false, true] {
        let memory = MemoryStore::new(10);
        let loader = Loader::new();
        let cached = match is_remote {
            true => patient(remote(&memory), &loader),
            false => patient(memory.clone(), &loader),
        };
        let stale = Lifetimes::fresh_for(Duration::from_millis(1));
        let stale = stale.stale_while_revalidate(Duration::from_millis(200));
        let (there, reads) = (memory.clone(), cached.clone());
        let (driven, thread) = stalled(async move || {
            put_for(&there, 1, "42", JSON, stale).await;
            // Its refresh is a task of this runtime, and is not polled before it blocks.
            let (answer, status) = loop {
                let read = reads.clone().call(1).with_status().await;
                if !matches!(read.1, CacheStatus::Hit { .. }) {
                    break read;
                }
            };
            assert_eq!(answer.expect("an answer"), 42);
            assert!(matches!(status, CacheStatus::Stale { why: StaleReason::Revalidating, .. }));
        });
        // Until the stale window has ended, the others get the stale answer.
        assert_eq!(others(&cached, Duration::from_millis(250)), [1; 10], "one load");
        drop(driven);
        thread.join().expect("no panic");
    }
}

/// It has the lease, and does not renew it.
#[test]
fn a_load_in_a_runtime_that_is_not_driven_blocks_no_key() {
    let loader = Loader::gated();
    let cached = patient(MemoryStore::new(10), &loader);
    let (loads, begun) = (cached.clone(), loader.clone());
    let (driven, thread) = stalled(async move || {
        drop(ask(&loads, 1));
        begun.has_begun(1).await;
    });
    loader.let_go(2);
    assert_eq!(others(&cached, Duration::ZERO), [2; 10]);
    drop(driven);
    thread.join().expect("no panic");
}

/// It is slow, and gives signs of life.
#[test]
fn a_load_in_another_runtime_is_waited_for_however_long_it_takes() {
    let loader = Loader::taking(LEASE * 3);
    let cached = patient(MemoryStore::new(10), &loader);
    let (loads, begun) = (cached.clone(), loader.clone());
    let (has_begun, begins) = channel();
    let thread = thread::spawn(move || {
        runtime().block_on(async {
            let asked = ask(&loads, 1);
            begun.has_begun(1).await;
            has_begun.send(()).expect("a test that waits");
            answers(vec![asked]).await
        })
    });
    begins.recv().expect("it begins");
    assert_eq!(others(&cached, Duration::ZERO), [1; 10]);
    assert_eq!((thread.join().expect("no panic"), loader.loads()), (vec![1], 1));
}

/// Its answer is stored by a thread that drives no runtime at all.
#[test]
fn a_waiter_is_woken_by_what_another_runtime_stores() {
    let memory = MemoryStore::new(10);
    let cached = cached(memory.clone(), &Loader::new());
    let held = runtime().block_on(lease(&memory, 1, MINUTE));
    let waits = cached.clone();
    let (waiting, is_waiting) = channel();
    let thread = thread::spawn(move || {
        runtime().block_on(async {
            let asked = ask(&waits, 1);
            while waits.stats().leases.busy == 0 {
                tokio::task::yield_now().await;
            }
            waiting.send(()).expect("a test that waits");
            answers(vec![asked]).await
        })
    });
    is_waiting.recv().expect("it waits");
    runtime().block_on(commit(&memory, held, "42"));
    assert_eq!(thread.join().expect("no panic"), [42]);
    assert_eq!(cached.stats().wakes.push, 1);
}
