//! Servers that go away, come back, forget, and never answer.

use std::time::Duration;

use bellwether::store::Claim;
use bellwether_lock::{LockErrorKind, LockWait, Locks};
use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::servers::free_port;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::bench::{
    AMPLE, Bench, Kind, LockSettings, SESSION, SLACK, ask_by, free, insist, key, promises, take,
};

promises![
    a_caller_that_waits_waits_on_through_a_restart,
    holder_and_waiter_outlive_a_restart_and_fences_grow_over_it,
    what_was_dropped_is_made_again_and_fences_grow_over_it,
    a_server_that_comes_later_is_worked_with,
    damaged_answers_are_errors,
];

/// In its first request, which waits in the server.
async fn a_caller_that_waits_waits_on_through_a_restart(mut on: Bench) {
    let lock = on.lock();
    let held = take(&*lock, key(1)).await;
    let locks = Locks::new(on.lock()).wait(LockWait::at_most(LONG));
    // So that its session is not a new one.
    drop(locks.lock(&key(2)).await.expect("it is free"));
    let waits = tokio::spawn(async move { locks.lock(&key(1)).await.map(drop) });
    while !on.has_a_waiter() {
        sleep(Duration::from_millis(10)).await;
    }
    on.kill();
    // The session of the holder ends with the server, so the waiter is the next one.
    on.restart();
    waits.await.expect("no panic").expect("it waits on, up to its limit");
    drop(held);
}

/// Cases 21, 55 and 80.
async fn holder_and_waiter_outlive_a_restart_and_fences_grow_over_it(mut on: Bench) {
    let lock = on.lock();
    let mut before = take(&*lock, key(1)).await;
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { insist(&*lock, key(1)).await.0 }
    });
    let other = take(&*lock, key(2)).await;
    on.restart();
    before.lost(SESSION + AMPLE).await;
    let next = waits.await.expect("it is granted the key in the end");
    assert!(next.fence > before.fence, "{} came after {}", next.fence, before.fence);
    let released = lock.release(other.claim).await.expect("an answer");
    assert_eq!(released, bellwether_lock::Released::NotHeld);
    free(&*lock, next).await;
}

/// Case 21.
async fn what_was_dropped_is_made_again_and_fences_grow_over_it(on: Bench) {
    let lock = on.lock();
    let before = take(&*lock, key(1)).await;
    let fence = before.fence;
    free(&*lock, before).await;
    on.command(match on.kind {
        Kind::Rows => "DROP TABLE test.bellwether_fences, test.bellwether_locks",
        Kind::Advisory => "DROP SEQUENCE bellwether_fences",
    });
    let next = take(&*lock, key(1)).await;
    assert!(next.fence > fence, "{} came after {fence}", next.fence);
    assert!(crate::bench::ask(&*lock, key(1), Duration::ZERO).await.is_none());
    free(&*lock, next).await;
}

async fn a_server_that_comes_later_is_worked_with(mut on: Bench) {
    on.kill();
    let lock = on.lock();
    let error = ask_by(&*lock, Claim::new(key(1)), Duration::ZERO).await.expect_err("it is down");
    assert_eq!(error.kind(), LockErrorKind::Unreachable, "{error}");
    on.restart();
    let held = take(&*lock, key(1)).await;
    free(&*lock, held).await;
}

/// No panic, no wait without end, and no grant that is none.
async fn damaged_answers_are_errors(on: Bench) {
    let proxy = FaultProxy::start_raw(on.address()).await;
    let settings = LockSettings { timeout: Duration::from_millis(100), ..LockSettings::default() };
    let direct = on.lock();
    let holds = take(&*direct, key(1)).await;
    for nth in (0..600).step_by(17) {
        let lock = on.kind.lock_at(&on.kind.url_by(proxy.address()), &settings);
        proxy.flip(nth, 1 << (nth % 8));
        let began = Instant::now();
        let answer = ask_by(&*lock, Claim::new(key(2)), Duration::ZERO).await;
        assert!(began.elapsed() < AMPLE, "{:?}", began.elapsed());
        if let Err(error) = &answer {
            assert!(!error.to_string().contains("task that asked"), "a panic at byte {nth}");
        }
        drop((answer, lock));
        proxy.heal();
    }
    free(&*direct, holds).await;
}

/// Case 64.
#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_and_no_wait() {
    for kind in Kind::ALL {
        let url = kind.url_by(([127, 0, 0, 1], free_port()).into());
        let lock = kind.lock_at(&url, &LockSettings::default());
        let began = Instant::now();
        let error =
            ask_by(&*lock, Claim::new(key(1)), Duration::ZERO).await.expect_err("no server");
        assert_eq!(error.kind(), LockErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains(&key(1).to_string()), "{error}");
        assert!(began.elapsed() < AMPLE, "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_an_error_within_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let settings = LockSettings { timeout: SLACK, ..LockSettings::default() };
    for kind in Kind::ALL {
        let began = Instant::now();
        let error = kind.connect(&kind.url_by(address), &settings).await.expect_err("silence");
        assert_eq!(error.kind(), LockErrorKind::NoReply, "{error}");
        assert!(began.elapsed() < AMPLE, "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_server_with_another_protocol_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let settings = LockSettings { timeout: SLACK, ..LockSettings::default() };
    for kind in Kind::ALL {
        kind.connect(&kind.url_by(address), &settings).await.expect_err("no database");
    }
}

const LONG: Duration = Duration::from_secs(60);
