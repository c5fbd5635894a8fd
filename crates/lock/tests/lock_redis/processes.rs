//! Several processes: their counts are exact, and holders die or are paused.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs, slice};

use bellwether::store::Renew;
use bellwether_lock::{
    Attempt, FairLock, Lock, RedisLock, Redlock, ReentrantLock, Request, TakeOver,
};
use bellwether_testkit::locks::{
    Count, FencedResource, LockCommand, LockReply, LockSetup, LockWorker, read_count, work,
};
use bellwether_testkit::servers::RedisServer;
use bellwether_testkit::wait::until;
use futures_util::future::join_all;

use crate::world::{LONG, busy, claim, free, options, options_of, take, wait};

/// The rounds of each of 8 tasks in each of 8 processes; 1000 is the full run.
fn rounds(default: u64) -> u64 {
    let rounds = env::var("BELLWETHER_LOCK_ROUNDS").ok();
    rounds.map_or(default, |rounds| rounds.parse().expect("a number"))
}

#[test]
#[ignore = "only of use to the other tests, which run it in processes of its own"]
fn works() {
    work(lock);
}

async fn lock(setup: LockSetup) -> Result<Arc<dyn Lock>, Box<dyn Error + Send + Sync>> {
    let nodes: Vec<_> = setup.address.split(',').map(options_of).collect();
    let first = nodes[0].clone();
    Ok(match &*setup.kind {
        "redis" => Arc::new(RedisLock::connect(first).await?),
        "fair" => Arc::new(FairLock::connect(first).await?),
        "reentrant" => Arc::new(ReentrantLock::connect(first).await?),
        _ => Arc::new(Redlock::connect(nodes).await?),
    })
}

/// A process with a kind of lock on these servers.
async fn worker(kind: &str, servers: &[RedisServer]) -> LockWorker {
    let address = servers.iter().map(RedisServer::url).collect::<Vec<_>>().join(",");
    let setup = LockSetup { kind: kind.to_owned(), address };
    LockWorker::start("processes::works", &setup).await
}

async fn count_exactly(kind: &str, servers: &[RedisServer], rounds: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("count");
    fs::write(&file, "0 0").expect("a file");
    let began = Instant::now();
    let workers = join_all((0..8).map(|_| worker(kind, servers))).await;
    let fenced = kind != "redlock";
    let count =
        LockCommand::Count(Count { file: file.clone(), tasks: 8, rounds, in_turns: true, fenced });
    for counted in join_all(workers.iter().map(|worker| worker.send(&count))).await {
        assert!(matches!(counted, Ok(LockReply::Counted { .. })), "{counted:?}");
    }
    let (count, _) = read_count(&file);
    assert_eq!(count, 8 * 8 * rounds);
    let took = began.elapsed();
    let rounds = u32::try_from(count).expect("not so many");
    eprintln!("{kind}: {count} rounds in {took:?}, {:?} each", took / rounds);
}

#[tokio::test]
async fn eight_processes_count_exactly_with_the_redis_lock_and_fences_grow() {
    count_exactly("redis", &[RedisServer::start()], rounds(12)).await;
}

#[tokio::test]
async fn eight_processes_count_exactly_with_the_reentrant_lock_and_fences_grow() {
    count_exactly("reentrant", &[RedisServer::start()], rounds(10)).await;
}

#[tokio::test]
async fn eight_processes_count_exactly_with_the_fair_lock_and_fences_grow() {
    count_exactly("fair", &[RedisServer::start()], rounds(10)).await;
}

#[tokio::test]
async fn eight_processes_count_exactly_with_redlock() {
    count_exactly("redlock", &[(); 3].map(|()| RedisServer::start()), rounds(4)).await;
}

const LEASE: Duration = Duration::from_millis(600);

/// A process that holds the key 1, and renews it at a third of its lease.
async fn holder(server: &RedisServer) -> (LockWorker, u64) {
    let holder = worker("redis", slice::from_ref(server)).await;
    let fence = holder.holds(1, LEASE).await.expect("a fence");
    (holder, fence)
}

#[tokio::test]
async fn a_holder_that_is_killed_keeps_the_lock_no_longer_than_its_lease() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server)).await.expect("a lock");
    let (mut holder, fence) = holder(&server).await;
    // It renews, so the lease does not end while it lives.
    tokio::time::sleep(LEASE * 2).await;
    busy(&lock, &claim(1)).await;
    holder.kill();
    let began = Instant::now();
    let next = claim(1);
    let granted = wait(&lock, &next, LONG).await;
    let took = began.elapsed();
    assert!(took < LEASE + Duration::from_millis(250), "{took:?}");
    assert!(granted.fence.is_some_and(|next| next > fence));
    free(&lock, &next).await;
}

#[tokio::test]
async fn the_server_tracks_no_name_of_waiters_that_were_killed() {
    let server = RedisServer::start();
    let names = || server.info("stats", "tracking_total_keys").expect("a figure");
    for kind in ["redis", "fair", "reentrant"] {
        let lock = lock(LockSetup { kind: kind.to_owned(), address: server.url() }).await;
        let lock = lock.expect("a lock");
        let holder = claim(1);
        take(&*lock, &holder, LONG).await;
        let wait = LockCommand::Hold { key: 1, lease_ms: 1_000, patience_ms: 60_000 };
        let mut waiters = Vec::new();
        for _ in 0..3 {
            let waiter = worker(kind, slice::from_ref(&server)).await;
            assert_eq!(waiter.ask(&wait).await, LockReply::Busy);
            waiters.push(waiter);
        }
        assert_ne!(names(), "0", "{kind}");
        waiters.iter_mut().for_each(LockWorker::kill);
        free(&*lock, &holder).await;
        until(&format!("no name is tracked, {kind}"), || names() == "0").await;
    }
}

#[tokio::test]
async fn a_holder_paused_beyond_its_lease_is_notified_and_its_fence_is_refused() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server)).await.expect("a lock");
    let mut resource = FencedResource::default();
    let (holder, fence) = holder(&server).await;
    assert!(resource.accepts(fence));
    holder.stop();
    let began = Instant::now();
    let next = claim(1);
    let granted = wait(&lock, &next, LONG).await;
    let took = began.elapsed();
    assert!(took < LEASE + Duration::from_millis(250), "{took:?}");
    assert!(resource.accepts(granted.fence.expect("a fence")));
    holder.resume();
    assert_eq!(holder.loses(1).await, Some(fence));
    assert!(!resource.accepts(fence), "the late one was let in");
    assert_eq!(lock.renew(&next, LONG).await.expect("an answer"), Renew::Held);
}

#[tokio::test]
async fn the_lock_is_taken_over_from_a_paused_holder_and_never_from_one_that_renews() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server)).await.expect("a lock");
    let holder = worker("redis", slice::from_ref(&server)).await;
    let fence = holder.holds(1, Duration::from_secs(3)).await.expect("a fence");
    let takes = |from| lock.take_over(Request::new(claim(1), LONG), from);
    let seen = busy(&lock, &claim(1)).await.holder.expect("a holder");
    assert_eq!(seen.grant, fence);
    // It has renewed by now, so it is not the silent holder that was seen.
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    assert!(matches!(takes(seen).await.expect("an answer"), Attempt::Busy(_)));
    holder.stop();
    let seen = busy(&lock, &claim(1)).await.holder.expect("a holder");
    let winners = join_all((0..16).map(|_| takes(seen))).await;
    let mut winners = winners.into_iter().filter_map(|attempt| match attempt {
        Ok(Attempt::Granted(grant)) => grant.fence,
        _ => None,
    });
    assert!(winners.next().is_some_and(|next| next > fence));
    assert_eq!(winners.next(), None);
    holder.resume();
    assert_eq!(holder.loses(1).await, Some(fence));
}
