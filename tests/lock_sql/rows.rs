//! What the row form leaves behind.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::bench::{Bench, Kind, SLACK, ask, free, insist, key, take};

fn rows(on: &Bench) -> String {
    on.command("SELECT COUNT(*) FROM test.bellwether_locks")
}

fn make_old(on: &Bench) {
    on.command("UPDATE test.bellwether_locks SET made_at = NOW() - INTERVAL 2 HOUR");
}

#[tokio::test]
async fn old_rows_are_removed_unless_somebody_holds_them() {
    let on = Bench::start(Kind::Rows);
    let lock = on.lock();
    for number in 0..20 {
        let held = take(&*lock, key(number)).await;
        free(&*lock, held).await;
    }
    assert_eq!(rows(&on), "20");
    make_old(&on);
    let kept = take(&*lock, key(1)).await;
    for _ in 0..256 {
        let held = take(&*lock, key(100)).await;
        free(&*lock, held).await;
    }
    // Of the one that is held, and of the one that came later.
    assert_eq!(rows(&on), "2");
    assert!(ask(&*lock, key(1), Duration::ZERO).await.is_none());
    free(&*lock, kept).await;
    let again = take(&*lock, key(2)).await;
    free(&*lock, again).await;
}

#[tokio::test]
async fn who_waits_for_a_row_that_is_removed_makes_it_again() {
    let on = Bench::start(Kind::Rows);
    let lock = on.lock();
    let held = take(&*lock, key(1)).await;
    let server = Arc::new(on);
    let removes = {
        let server = Arc::clone(&server);
        spawn_blocking(move || server.command("DELETE FROM test.bellwether_locks"))
    };
    // It is done when the holder lets go, and then comes the turn of who waits behind it.
    sleep(SLACK).await;
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { ask(&*lock, key(1), Duration::from_secs(20)).await }
    });
    sleep(SLACK).await;
    free(&*lock, held).await;
    removes.await.expect("it is removed");
    let held = waits.await.expect("no panic").expect("it is granted");
    assert!(ask(&*lock, key(1), Duration::ZERO).await.is_none());
    free(&*lock, held).await;
}

/// Its transaction is taken back, and the number that was taken in it is not.
#[tokio::test]
async fn a_holder_that_was_killed_takes_no_fence_back() {
    let on = Bench::start(Kind::Rows);
    let lock = on.lock();
    let mut last = 0;
    for _ in 0..3 {
        let (held, _) = insist(&*lock, key(1)).await;
        assert!(held.fence > last, "{} came after {last}", held.fence);
        last = held.fence;
        on.kill_sessions();
    }
}
