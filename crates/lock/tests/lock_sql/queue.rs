//! The queue of the server: waiters that die in it, waiters that give up, and its size.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bellwether::store::Claim;
use bellwether_lock::{Lock, Released};
use bellwether_testkit::faults::FaultProxy;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::bench::{AMPLE, Bench, SESSION, SLACK, ask, ask_by, free, insist, key, promises, take};

promises![
    a_waiter_that_dies_delays_no_waiter_and_admits_no_waiter,
    a_free_key_is_granted_at_once_after_a_short_wait_that_ended,
    a_hundred_waiters_are_all_served,
    a_release_that_is_not_answered_frees_the_key_all_the_same,
    many_short_holds_leave_none_behind,
];

/// Cases 43 and 45.
async fn a_waiter_that_dies_delays_no_waiter_and_admits_no_waiter(on: Bench) {
    let proxy = FaultProxy::start_raw(on.address()).await;
    let cut_off = on.lock_by(proxy.address());
    let lock = on.lock();
    let held = take(&*lock, key(1)).await;
    let dies = async {
        // Whether it is notified at once does not matter here.
        let _ = ask_by(&*cut_off, Claim::new(key(1)), PATIENCE).await;
        pending::<()>().await
    };
    let waits = async {
        sleep(SLACK).await;
        let next = ask(&*lock, key(1), PATIENCE).await.expect("its turn comes");
        (next, Instant::now())
    };
    let breaks = async {
        sleep(SLACK * 2).await;
        proxy.cut();
        sleep(SLACK * 2).await;
        assert!(ask(&*lock, key(1), Duration::ZERO).await.is_none(), "it is held as before");
        free(&*lock, held).await;
        Instant::now()
    };
    tokio::select! {
        () = dies => unreachable!("it waits for ever after it has died"),
        ((next, granted), freed) = async { tokio::join!(waits, breaks) } => {
            let took = granted.saturating_duration_since(freed);
            assert!(took < AMPLE, "{took:?} after the release");
            free(&*lock, next).await;
        }
    }
}

/// Case 44.
async fn a_free_key_is_granted_at_once_after_a_short_wait_that_ended(on: Bench) {
    let lock = on.lock();
    let other = on.lock();
    let held = take(&*lock, key(1)).await;
    assert!(ask(&*other, key(1), SLACK).await.is_none());
    free(&*lock, held).await;
    let next = take(&*lock, key(1)).await;
    free(&*lock, next).await;
    let next = take(&*other, key(1)).await;
    free(&*other, next).await;
}

/// Case 83.
async fn a_hundred_waiters_are_all_served(on: Bench) {
    let lock = on.lock();
    let held = take(&*lock, key(1)).await;
    let fence = held.fence;
    let waiters = (0..100).map(|_| {
        let lock = Arc::clone(&lock);
        async move {
            let held = ask(&*lock, key(1), PATIENCE).await.expect("its turn comes");
            let fence = held.fence;
            free(&*lock, held).await;
            fence
        }
    });
    let frees = async {
        sleep(SLACK).await;
        free(&*lock, held).await;
    };
    let (mut fences, ()) = tokio::join!(join_all(waiters), frees);
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), 100);
    assert!(fences[0] > fence);
}

/// Case 15.
async fn a_release_that_is_not_answered_frees_the_key_all_the_same(on: Bench) {
    let proxy = FaultProxy::start_raw(on.address()).await;
    let cut_off = on.lock_by(proxy.address());
    let lock = on.lock();
    let before = take(&*cut_off, key(1)).await;
    proxy.blackhole();
    let asked = cut_off.release(before.claim.clone());
    let (answer, (held, took)) = tokio::join!(asked, insist(&*lock, key(1)));
    assert!(!matches!(answer, Ok(Released::Freed)), "that cannot be known");
    assert!(took < SESSION + AMPLE, "{took:?}");
    assert!(held.fence > before.fence);
    proxy.heal();
    let again = cut_off.release(before.claim).await.expect("an answer");
    assert_eq!(again, Released::NotHeld);
    assert!(ask(&*cut_off, key(1), Duration::ZERO).await.is_none(), "another holder has it");
    free(&*lock, held).await;
}

/// Case 23.
async fn many_short_holds_leave_none_behind(on: Bench) {
    let lock = on.lock();
    let tasks = (0..8).map(|task| {
        let lock = Arc::clone(&lock);
        async move {
            for _ in 0..25 {
                let held = ask(&*lock, key(task % 2), PATIENCE).await.expect("its turn comes");
                free(&*lock, held).await;
            }
        }
    });
    join_all(tasks).await;
    let other = on.lock();
    for number in 0..2 {
        let held = take(&*other, key(number)).await;
        free(&*other, held).await;
    }
    assert!(!on.has_a_waiter());
}

const PATIENCE: Duration = Duration::from_secs(60);
