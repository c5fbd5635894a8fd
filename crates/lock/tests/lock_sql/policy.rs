//! The policy of [`Locks`], over sessions.

use std::sync::Arc;
use std::time::Duration;

use bellwether_lock::{Fenced, LockWait, Locks, Released};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use crate::bench::{AMPLE, Bench, SESSION, SLACK, key, promises};

promises![
    a_holder_that_loses_its_session_is_notified,
    waiters_of_processes_are_handed_the_key_at_once,
    a_wait_that_is_dropped_leaves_nothing,
];

fn locks(on: &Bench) -> Locks<Arc<dyn Fenced>> {
    Locks::new(on.lock()).wait(LockWait::at_most(Duration::from_secs(20)))
}

/// Case 62.
async fn a_holder_that_loses_its_session_is_notified(on: Bench) {
    let locks = locks(&on);
    let held = locks.lock(&key(1)).await.expect("it is free");
    on.kill_sessions();
    timeout(SESSION / 3 + AMPLE, held.lost()).await.expect("it is notified");
    assert!(held.is_lost());
    assert_eq!(held.release().await.expect("an answer"), Released::NotHeld);
}

/// Each is a process of its own as far as it can tell. `--nocapture` shows how long it takes.
async fn waiters_of_processes_are_handed_the_key_at_once(on: Bench) {
    let began = Instant::now();
    let held = locks(&on).lock(&key(1)).await.expect("it is free");
    let waiters = (0..WAITERS).map(|_| {
        let locks = locks(&on);
        async move {
            let held = locks.lock(&key(1)).await.expect("its turn comes");
            let granted = began.elapsed();
            held.release().await.expect("an answer");
            (granted, began.elapsed())
        }
    });
    let frees = async {
        sleep(SLACK).await;
        held.release().await.expect("an answer");
        began.elapsed()
    };
    let (mut turns, freed) = tokio::join!(join_all(waiters), frees);
    turns.sort();
    let last = turns.last().expect("a last one").1;
    println!("{:?}: {WAITERS} hand-overs took {:?}", on.kind, last - freed);
    // By asking every 50 ms, it would be half of that for each, at best.
    assert!(last - freed < AMPLE, "{:?}", last - freed);
}

/// Cases 36 and 88.
async fn a_wait_that_is_dropped_leaves_nothing(on: Bench) {
    let ours = locks(&on);
    let others = locks(&on);
    let held = ours.lock(&key(1)).await.expect("it is free");
    assert!(timeout(SLACK, others.lock(&key(1))).await.is_err());
    others.shutdown(Duration::from_secs(5)).await;
    assert!(!on.has_a_waiter());
    held.release().await.expect("an answer");
    let next = locks(&on).try_lock(&key(1)).await.expect("it is free");
    next.release().await.expect("an answer");
}

const WAITERS: u32 = 8;
