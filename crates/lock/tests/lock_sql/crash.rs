//! Holders that are killed, stopped or cut off.

use std::time::Duration;

use bellwether_lock::Released;
use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::locks::{FencedResource, LockCommand, LockReply};
use tokio::time::{Instant, sleep};

use crate::bench::{
    AMPLE, Bench, NO_LEASE, SESSION, SLACK, ask, at_best, free, insist, key, promises, take,
};
use crate::worker;

promises![
    a_holder_that_was_killed_costs_its_session_timeout_at_most,
    a_stopped_holder_costs_its_session_timeout_and_is_notified_and_refused,
    a_waiter_that_is_stopped_costs_its_session_timeout_at_most,
    a_holder_whose_connection_is_cut_is_notified_and_the_next_is_granted_at_once,
    a_holder_without_a_connection_knows_of_the_loss_before_the_next_grant,
    a_session_that_is_killed_is_lost_and_nothing_is_lost_by_a_release,
];

/// Case 52.
async fn a_holder_that_was_killed_costs_its_session_timeout_at_most(on: Bench) {
    let lock = on.lock();
    // Its connection is closed by the system, so it does not even take that long.
    at_best(SLACK, async |number| {
        let mut worker = worker::start(&on).await;
        let before = worker.holds(number, NO_LEASE).await;
        assert!(ask(&*lock, key(number), Duration::ZERO).await.is_none());
        worker.kill();
        let (held, took) = insist(&*lock, key(number)).await;
        assert!(Some(held.fence) > before);
        free(&*lock, held).await;
        took
    })
    .await;
}

/// Case 54, and what the fences are for.
async fn a_stopped_holder_costs_its_session_timeout_and_is_notified_and_refused(on: Bench) {
    let lock = on.lock();
    at_best(SESSION + SLACK, async |number| {
        let mut resource = FencedResource::default();
        let worker = worker::start(&on).await;
        let theirs = worker.holds(number, NO_LEASE).await.expect("a fence");
        assert!(resource.accepts(theirs));
        worker.stop();
        let (held, took) = insist(&*lock, key(number)).await;
        assert!(took > SESSION / 2, "{took:?}");
        assert!(resource.accepts(held.fence));
        worker.resume();
        assert_eq!(worker.loses(number).await, Some(theirs));
        assert!(!resource.accepts(theirs), "a holder that has lost the key writes");
        free(&*lock, held).await;
        took
    })
    .await;
}

/// It is granted the key while it is stopped.
async fn a_waiter_that_is_stopped_costs_its_session_timeout_at_most(on: Bench) {
    let lock = on.lock();
    at_best(SESSION + SLACK, async |number| {
        let held = take(&*lock, key(number)).await;
        let worker = worker::start(&on).await;
        // It has a connection, so it waits at once.
        let theirs = worker.holds(100 + number, NO_LEASE).await;
        let waiting = LockCommand::Hold { key: number, lease_ms: 1, patience_ms: 60_000 };
        let waiting = worker.send(&waiting);
        sleep(SLACK).await;
        worker.stop();
        free(&*lock, held).await;
        let (held, took) = insist(&*lock, key(number)).await;
        worker.resume();
        assert_eq!(worker.loses(100 + number).await, theirs);
        let waited = waiting.await.expect("the worker lives");
        // Notified or not, it does not hold the key.
        assert!(!matches!(waited, LockReply::Held(_)), "{waited:?}");
        free(&*lock, held).await;
        took
    })
    .await;
}

async fn a_holder_whose_connection_is_cut_is_notified_and_the_next_is_granted_at_once(on: Bench) {
    let proxy = FaultProxy::start_raw(on.address()).await;
    let cut_off = on.lock_by(proxy.address());
    let lock = on.lock();
    at_best(SLACK, async |number| {
        let mut before = take(&*cut_off, key(number)).await;
        proxy.cut();
        let (held, took) = insist(&*lock, key(number)).await;
        before.lost(SESSION / 3 + AMPLE).await;
        assert!(held.fence > before.fence);
        // Case 54: a late release is harmless.
        let released = cut_off.release(before.claim).await.expect("an answer");
        assert_eq!(released, Released::NotHeld);
        assert!(ask(&*lock, key(number), Duration::ZERO).await.is_none());
        free(&*lock, held).await;
        took
    })
    .await;
}

async fn a_holder_without_a_connection_knows_of_the_loss_before_the_next_grant(on: Bench) {
    let proxy = FaultProxy::start_raw(on.address()).await;
    let lock = on.lock();
    at_best(SESSION + SLACK, async |number| {
        let cut_off = on.lock_by(proxy.address());
        let mut before = take(&*cut_off, key(number)).await;
        proxy.blackhole();
        let began = Instant::now();
        let notified = async {
            before.lost(SESSION + AMPLE).await;
            began.elapsed()
        };
        let (notified, (held, granted)) = tokio::join!(notified, insist(&*lock, key(number)));
        assert!(
            notified < granted,
            "notified after {notified:?}, while it was granted after {granted:?}"
        );
        free(&*lock, held).await;
        proxy.heal();
        granted
    })
    .await;
}

/// Cases 54, 62 and 63.
async fn a_session_that_is_killed_is_lost_and_nothing_is_lost_by_a_release(on: Bench) {
    let lock = on.lock();
    let released = take(&*lock, key(1)).await;
    let of_released = released.session.clone();
    let mut killed = take(&*lock, key(2)).await;
    free(&*lock, released).await;
    on.kill_sessions();
    killed.lost(SESSION / 3 + AMPLE).await;
    // A later caller is notified of the loss too.
    killed.lost(Duration::ZERO).await;
    assert!(!of_released.has_ended(), "a release was reported as a loss");
    let next = take(&*lock, key(2)).await;
    assert!(next.fence > killed.fence);
    let late = lock.release(killed.claim).await.expect("an answer");
    assert_eq!(late, Released::NotHeld);
    free(&*lock, next).await;
}
