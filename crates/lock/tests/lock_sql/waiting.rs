//! The server waits for as long as the caller does, and no longer.

use std::time::Duration;

use bellwether::store::Claim;
use bellwether_lock::{Lock, LockErrorKind, Released, Request};
use bellwether_testkit::faults::FaultProxy;
use tokio::time::{Instant, sleep, timeout};

use crate::bench::{
    AMPLE, Bench, Kind, LockSettings, SESSION, SLACK, ask, ask_by, free, insist, key, promises,
    take,
};

promises![
    a_wait_ends_when_patience_does,
    a_waiter_is_granted_the_key_at_once,
    a_waiter_that_gives_up_is_gone_from_the_server,
    a_request_dropped_at_any_moment_leaves_nothing,
    a_request_that_was_never_polled_takes_nothing,
    a_wait_is_released_by_its_claim,
    a_wait_that_is_not_answered_ends_and_leaves_nothing,
    two_sessions_that_wait_for_each_other_are_answered_busy,
];

/// Cases 30 and 31.
async fn a_wait_ends_when_patience_does(on: Bench) {
    let lock = on.lock();
    let held = take(&*lock, key(1)).await;
    for patience in [300, 1_200].map(Duration::from_millis) {
        let began = Instant::now();
        assert!(ask(&*lock, key(1), patience).await.is_none());
        let took = began.elapsed();
        assert!(took + SLACK / 5 > patience && took < patience + AMPLE, "{took:?}, {patience:?}");
    }
    free(&*lock, held).await;
}

async fn a_waiter_is_granted_the_key_at_once(on: Bench) {
    let lock = on.lock();
    for patience in [900, 30_000].map(Duration::from_millis) {
        let held = take(&*lock, key(1)).await;
        let waits = async {
            let held = ask(&*lock, key(1), patience).await.expect("it becomes free");
            (held, Instant::now())
        };
        let frees = async {
            sleep(SLACK).await;
            free(&*lock, held).await;
            Instant::now()
        };
        let ((held, granted), freed) = tokio::join!(waits, frees);
        let took = granted.saturating_duration_since(freed);
        assert!(took < AMPLE, "{took:?} after the release");
        free(&*lock, held).await;
    }
}

/// Case 36.
async fn a_waiter_that_gives_up_is_gone_from_the_server(on: Bench) {
    let lock = on.lock();
    let held = take(&*lock, key(1)).await;
    let gone = Claim::new(key(1));
    let wait = ask_by(&*lock, gone.clone(), Duration::from_secs(60));
    assert!(timeout(SLACK, wait).await.is_err());
    assert!(on.has_a_waiter(), "or there is nothing to be gone from");
    let began = Instant::now();
    assert_eq!(lock.release(gone).await.expect("an answer"), Released::NotHeld);
    assert!(began.elapsed() < AMPLE, "{:?}", began.elapsed());
    assert!(!on.has_a_waiter());
    free(&*lock, held).await;
    let next = take(&*lock, key(1)).await;
    free(&*lock, next).await;
}

/// Case 88, as far as it is the lock's.
async fn a_request_dropped_at_any_moment_leaves_nothing(on: Bench) {
    let lock = on.lock();
    for step in 0..40 {
        let claim = Claim::new(key(1));
        let patience = Duration::from_millis(step % 2 * 500);
        let request = ask_by(&*lock, claim.clone(), patience);
        let _ = timeout(Duration::from_micros(step * 150), request).await;
        lock.release(claim).await.expect("an answer");
        let (next, took) = insist(&*lock, key(1)).await;
        assert!(took < AMPLE, "{took:?} after step {step}");
        free(&*lock, next).await;
    }
    assert!(format!("{lock:?}").contains("claims: 0"), "{lock:?}");
}

/// Case 35.
async fn a_request_that_was_never_polled_takes_nothing(on: Bench) {
    let lock = on.lock();
    let claim = Claim::new(key(1));
    drop(lock.acquire(Request::new(claim.clone(), SLACK).patient_for(SLACK)));
    assert_eq!(lock.release(claim).await.expect("an answer"), Released::NotHeld);
    let held = take(&*lock, key(1)).await;
    free(&*lock, held).await;
}

async fn a_wait_is_released_by_its_claim(on: Bench) {
    let lock = on.lock();
    let held = take(&*lock, key(1)).await;
    let claim = Claim::new(key(1));
    let waits = ask_by(&*lock, claim.clone(), Duration::from_secs(60));
    let releases = async {
        sleep(SLACK).await;
        lock.release(claim).await
    };
    let (waited, released) = timeout(AMPLE, async { tokio::join!(waits, releases) })
        .await
        .expect("it is not waited for any more");
    assert_eq!(released.expect("an answer"), Released::NotHeld);
    assert!(waited.is_ok_and(|held| held.is_none()));
    free(&*lock, held).await;
}

/// Case 46.
async fn a_wait_that_is_not_answered_ends_and_leaves_nothing(on: Bench) {
    let proxy = FaultProxy::start_raw(on.address()).await;
    let settings = LockSettings { timeout: Duration::from_millis(500), ..LockSettings::default() };
    let lock = on.kind.lock_at(&on.kind.url_by(proxy.address()), &settings);
    let direct = on.lock();
    let held = take(&*direct, key(1)).await;
    // So that there is a connection to wait by.
    let other = take(&*lock, key(2)).await;
    free(&*lock, other).await;
    let claim = Claim::new(key(1));
    let waits = ask_by(&*lock, claim.clone(), Duration::from_secs(1));
    let breaks = async {
        sleep(SLACK).await;
        proxy.blackhole();
    };
    let began = Instant::now();
    let (waited, ()) = tokio::join!(waits, breaks);
    assert_eq!(waited.expect_err("no answer").kind(), LockErrorKind::NoReply);
    assert!(began.elapsed() < Duration::from_millis(1_500) + AMPLE, "{:?}", began.elapsed());
    assert_eq!(lock.release(claim).await.expect("an answer"), Released::NotHeld);
    free(&*direct, held).await;
    // A grant of the server to a session that is cut off ends with the session.
    let (next, took) = insist(&*direct, key(1)).await;
    assert!(took < SESSION + AMPLE, "{took:?}");
    free(&*direct, next).await;
}

/// Case 86: the server cannot detect the deadlock, because they wait by other sessions than those
/// that hold.
async fn two_sessions_that_wait_for_each_other_are_answered_busy(on: Bench) {
    let lock = on.lock();
    let [one, other] = [take(&*lock, key(1)).await, take(&*lock, key(2)).await];
    let patience = Duration::from_millis(500);
    let began = Instant::now();
    let (first, second) =
        tokio::join!(ask(&*lock, key(2), patience), ask(&*lock, key(1), patience));
    assert!(first.is_none() && second.is_none());
    assert!(began.elapsed() < patience + AMPLE, "{:?}", began.elapsed());
    free(&*lock, one).await;
    free(&*lock, other).await;
}

/// Case 42. The others make no such promise.
#[tokio::test]
async fn sessions_of_postgres_are_served_in_the_order_they_came() {
    let on = Bench::start(Kind::Advisory);
    let lock = on.lock();
    let held = take(&*lock, key(1)).await;
    let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..5 {
        let lock = lock.clone();
        let served = served.clone();
        tokio::spawn(async move {
            let held = ask(&*lock, key(1), Duration::from_secs(30)).await.expect("its turn");
            served.send(number).expect("the test listens");
            free(&*lock, held).await;
        });
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        while on.command(waiting) != (number + 1).to_string() {
            sleep(Duration::from_millis(10)).await;
        }
    }
    free(&*lock, held).await;
    for number in 0..5 {
        assert_eq!(order.recv().await, Some(number));
    }
}

/// The interruption may reach the server after the wait has ended by itself. It would then
/// interrupt the request of another caller.
#[tokio::test]
async fn a_session_that_was_interrupted_serves_no_other_caller() {
    let on = Bench::start(Kind::Advisory);
    let ours = on.lock();
    let other = on.lock();
    let held = take(&*other, key(1)).await;
    let waits = tokio::spawn({
        let ours = ours.clone();
        async move { ask(&*ours, key(1), Duration::from_secs(30)).await }
    });
    let waiting = "SELECT pid FROM pg_locks WHERE NOT granted";
    while on.command(waiting).is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
    let interrupted = on.command(waiting);
    waits.abort();
    while !on.command(waiting).is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
    let next = take(&*ours, key(2)).await;
    let holding = on.command("SELECT pid FROM pg_locks WHERE granted AND locktype = 'advisory'");
    assert_eq!(holding.lines().count(), 2, "{holding}");
    assert!(!holding.lines().any(|pid| pid == interrupted), "{interrupted}: {holding}");
    free(&*ours, next).await;
    free(&*other, held).await;
}
