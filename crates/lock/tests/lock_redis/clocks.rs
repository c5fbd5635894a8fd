//! Servers whose clocks are wrong: by hours, against each other, and from one start to the next.

use std::time::Duration;

use bellwether::store::Renew;
use bellwether_lock::{Lock, RedisLock, Redlock};
use bellwether_testkit::servers::{RedisServer, Reply};
use tokio::time::sleep;

use crate::world::{LONG, busy, claim, fenced, free, grants, options, queue_up, take, wait};

const HOUR: i64 = 3_600;

/// The error of the server's clock, in hours.
fn hour(server: &RedisServer) -> i64 {
    let Reply::Array(mut time) = server.command(&["TIME"]) else { panic!("no time") };
    time.swap_remove(0).text().parse::<i64>().expect("seconds") / HOUR
}

/// Leases are sent as durations, so no client's clock matters.
#[tokio::test]
async fn nodes_whose_clocks_are_hours_apart_agree_about_leases() {
    let servers = [-5 * HOUR, 0, 30 * HOUR].map(|wrong| RedisServer::start_with_clock(wrong, &[]));
    assert!(hour(&servers[2]) - hour(&servers[0]) >= 34, "the clocks are not apart");
    let lock = Redlock::connect(servers.iter().map(options)).await.expect("a lock");
    let first = claim(1);
    let lease = Duration::from_millis(400);
    take(&lock, &first, lease).await;
    for _ in 0..4 {
        sleep(lease / 2).await;
        assert_eq!(lock.renew(&first, lease).await.expect("an answer"), Renew::Held);
    }
    let refused = busy(&lock, &claim(1)).await;
    assert!(refused.remaining.is_some_and(|left| left <= lease), "{refused:?}");
    let second = claim(1);
    wait(&lock, &second, LONG).await;
    assert_eq!(lock.renew(&first, lease).await.expect("an answer"), Renew::Lost);
    free(&lock, &second).await;
}

#[tokio::test]
async fn every_lock_works_on_a_server_whose_clock_is_years_behind() {
    let server = RedisServer::start_with_clock(-24 * 365 * 20 * HOUR, &[]);
    let locks = fenced(&server).await;
    let lease = Duration::from_millis(200);
    for lock in locks {
        let holder = claim(1);
        let waiter = claim(1);
        let first = take(&*lock, &holder, lease).await.fence;
        queue_up(&*lock, &waiter).await;
        let second = wait(&*lock, &waiter, LONG).await.fence;
        assert!(second > first, "{second:?} after {first:?}");
        assert_eq!(lock.renew(&holder, lease).await.expect("an answer"), Renew::Lost);
        free(&*lock, &waiter).await;
    }
}

#[tokio::test]
async fn fences_grow_over_a_restart_with_a_clock_that_was_put_back() {
    let on_disk = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = RedisServer::start_with_clock(HOUR, &on_disk);
    let lock = RedisLock::connect(options(&server)).await.expect("a lock");
    let mut last = 0;
    for hours in [1, 0, -3] {
        server.set_clock(hours * HOUR);
        let before = hour(&server);
        server.restart();
        assert!(hours == 1 || hour(&server) < before, "the clock was not put back");
        for _ in 0..3 {
            let ours = claim(1);
            let fence = take(&lock, &ours, LONG).await.fence.expect("a fence");
            assert!(fence > last, "{fence} after {last}");
            last = fence;
            free(&lock, &ours).await;
        }
    }
}

/// The snapshot has the counter of fences, and not what it counted since.
#[tokio::test]
async fn fences_grow_over_a_restart_from_an_older_snapshot() {
    let mut server = RedisServer::start();
    for lock in fenced(&server).await {
        let saved = grants(&*lock, 0, 3).await;
        server.command(&["SAVE"]);
        let lost = grants(&*lock, saved, 5).await;
        server.restart();
        grants(&*lock, lost, 3).await;
    }
}
