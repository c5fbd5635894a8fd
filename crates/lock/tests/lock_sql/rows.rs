//! What the row form leaves behind.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bellwether::store::Claim;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::bench::{Bench, Kind, LockSettings, SLACK, ask, ask_by, free, insist, key, take};

fn rows(on: &Bench) -> String {
    on.command("SELECT COUNT(*) FROM test.bellwether_locks")
}

fn make_old(on: &Bench) {
    on.command("UPDATE test.bellwether_locks SET made_at = NOW() - INTERVAL 11 SECOND");
}

#[tokio::test]
async fn old_rows_are_removed_unless_they_are_held() {
    let on = Bench::start(Kind::Rows);
    let lock = on.lock();
    for number in 0..20 {
        let held = take(&*lock, key(number)).await;
        free(&*lock, held).await;
    }
    assert_eq!(rows(&on), "20");
    make_old(&on);
    let kept = take(&*lock, key(1)).await;
    for _ in 0..64 {
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

/// Each ends before its 64th release, and the last key of each is never released.
#[tokio::test]
async fn short_jobs_remove_the_old_rows_of_earlier_ones() {
    let on = Bench::start(Kind::Rows);
    for job in 0..5 {
        let lock = on.lock();
        for number in 0..20 {
            let held = take(&*lock, key(job * 100 + number)).await;
            free(&*lock, held).await;
        }
        let killed = take(&*lock, key(job * 100 + 20)).await;
        assert_eq!(rows(&on), "21", "after job {job}");
        drop((killed, lock));
        on.kill_sessions();
        make_old(&on);
    }
}

/// A process that connects takes nothing but the row it asks for.
#[tokio::test]
async fn the_first_release_of_a_process_removes_all_old_rows_and_its_connection_none() {
    let on = Bench::start(Kind::Rows);
    let earlier = on.lock();
    for number in 0..40 {
        let held = take(&*earlier, key(number)).await;
        free(&*earlier, held).await;
    }
    make_old(&on);
    let lock = on.lock();
    let held = take(&*lock, key(100)).await;
    assert_eq!(rows(&on), "41");
    free(&*lock, held).await;
    assert_eq!(rows(&on), "1");
}

#[tokio::test]
async fn a_waiter_for_a_row_that_is_removed_creates_it_again() {
    let on = Bench::start(Kind::Rows);
    let lock = on.lock();
    let held = take(&*lock, key(1)).await;
    let server = Arc::new(on);
    let removes = {
        let server = Arc::clone(&server);
        spawn_blocking(move || server.command("DELETE FROM test.bellwether_locks"))
    };
    // The removal waits until the holder releases, and then the next waiter is granted the key.
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

/// A way to the server on which every connection but the first is slow to begin.
async fn slow_from_the_second_on(server: SocketAddr, slow: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((mut client, _)) = listener.accept().await else { return };
            tokio::spawn(async move {
                if number > 0 {
                    sleep(slow).await;
                }
                let mut server = TcpStream::connect(server).await.expect("the server");
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    address
}

/// The connection that counts is slow, and the session that has locked the row ends meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fence_that_was_counted_after_the_session_had_ended_is_not_granted() {
    let on = Bench::start(Kind::Rows);
    let settings = LockSettings {
        session: Duration::from_secs(2),
        timeout: Duration::from_secs(20),
        ..Default::default()
    };
    let other = on.lock_with(&settings);
    let made = take(&*other, key(1)).await;
    free(&*other, made).await;
    let way = slow_from_the_second_on(on.address(), Duration::from_secs(5)).await;
    let late = Kind::Rows.lock_at(&Kind::Rows.url_by(way), &settings);
    let late =
        tokio::spawn(
            async move { ask_by(&*late, Claim::new(key(1)), Duration::from_secs(10)).await },
        );
    sleep(Duration::from_secs(1)).await;
    assert!(ask(&*other, key(1), Duration::ZERO).await.is_none(), "the row is locked");
    let (holder, _) = insist(&*other, key(1)).await;
    // An error that the session has ended is as good as no grant.
    if let Ok(Some(late)) = late.await.expect("no panic") {
        assert!(late.fence < holder.fence, "{} after {}", late.fence, holder.fence);
    }
    free(&*other, holder).await;
}

/// As many claims as there may be connections, and one connection more that counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_no_more_connections_than_was_said_and_the_one_that_counts() {
    let on = Bench::start(Kind::Rows);
    let settings = LockSettings { connections: 40, ..Default::default() };
    let lock = on.lock_with(&settings);
    let made = take(&*lock, key(0)).await;
    free(&*lock, made).await;
    let takes: Vec<_> = (0..40)
        .map(|number| {
            let lock = lock.clone();
            tokio::spawn(async move { insist(&*lock, key(number)).await })
        })
        .collect();
    let mut held = Vec::new();
    for take in takes {
        held.push(take.await.expect("granted"));
    }
    let most = on.command(
        "SELECT variable_value FROM information_schema.global_status \
         WHERE variable_name = 'MAX_USED_CONNECTIONS'",
    );
    let most: u32 = most.parse().expect("a number");
    // One more is this request's.
    assert!(most <= 40 + 1 + 1, "{most} connections at a time");
    for (held, _) in held {
        free(&*lock, held).await;
    }
}
