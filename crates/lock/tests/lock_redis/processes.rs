//! Several processes: who counts exactly, and what becomes of holders that die or stand still.

use std::env;
use std::fs;
use std::time::{Duration, Instant};

use bellwether_lock::{Attempt, Lock, RedisLock, Redlock, Released, Renew, Request, TakeOver};

use crate::process::{Process, Task};
use crate::support::redis_server::RedisServer;
use crate::world::{LONG, busy, claim, free, options, take, wait};

/// So many rounds of each of 8 tasks in each of 8 processes; 1000 is the full run.
fn rounds(default: u32) -> u32 {
    let told = env::var("BELLWETHER_LOCK_ROUNDS").ok();
    told.map_or(default, |rounds| rounds.parse().expect("a number"))
}

fn count_exactly(kind: &str, servers: &[RedisServer], rounds: u32) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("count").display().to_string();
    fs::write(&file, "0 0").expect("a file");
    let urls = servers.iter().map(RedisServer::url).collect::<Vec<_>>().join(",");
    let began = Instant::now();
    let task = Task::Count { tasks: 8, rounds };
    let start = |_| Process::start(kind, &urls, &file, task);
    let mut processes: Vec<_> = (0..8).map(start).collect();
    for process in &mut processes {
        process.says("counted");
    }
    let (count, _) = fs::read_to_string(&file)
        .map(|text| text.split_once(' ').map(|(count, last)| (count.to_owned(), last.to_owned())))
        .expect("the count")
        .expect("a count and a fence");
    assert_eq!(count, (8 * 8 * rounds).to_string());
    let took = began.elapsed();
    eprintln!("{kind}: {count} rounds in {took:?}, {:?} each", took / (64 * rounds));
}

#[test]
fn eight_processes_count_exactly_with_the_redis_lock_and_fences_grow() {
    count_exactly("redis", &[RedisServer::start()], rounds(12));
}

#[test]
fn eight_processes_count_exactly_with_the_reentrant_lock_and_fences_grow() {
    count_exactly("reentrant", &[RedisServer::start()], rounds(10));
}

#[test]
fn eight_processes_count_exactly_with_the_fair_lock_and_fences_grow() {
    count_exactly("fair", &[RedisServer::start()], rounds(10));
}

#[test]
fn eight_processes_count_exactly_with_redlock() {
    count_exactly("redlock", &[(); 3].map(|()| RedisServer::start()), rounds(4));
}

const LEASE: Duration = Duration::from_millis(600);

fn holder(server: &RedisServer) -> (Process, u64) {
    let task = Task::Hold { lease_ms: 600 };
    let mut holder = Process::start("redis", &server.url(), "-", task);
    let fence = holder.says("held").parse().expect("a fence");
    (holder, fence)
}

/// What remembers the largest fence it has seen, and refuses smaller ones.
#[derive(Default)]
struct Resource(u64);

impl Resource {
    fn accepts(&mut self, fence: u64) -> bool {
        let is_newer = fence >= self.0;
        self.0 = self.0.max(fence);
        is_newer
    }
}

#[tokio::test]
async fn a_holder_that_is_killed_keeps_the_lock_no_longer_than_its_lease() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server)).await.expect("a lock");
    let (mut holder, fence) = holder(&server);
    // It renews, so the lease does not end while it lives.
    tokio::time::sleep(LEASE * 2).await;
    busy(&lock, &claim(1)).await;
    holder.kill();
    let (began, next) = (Instant::now(), claim(1));
    let granted = wait(&lock, &next, LONG).await;
    let took = began.elapsed();
    assert!(took < LEASE + Duration::from_millis(250), "{took:?}");
    assert!(granted.fence.is_some_and(|next| next > fence));
    free(&lock, &next).await;
}

#[tokio::test]
async fn a_holder_that_stands_still_beyond_its_lease_is_told_and_its_fence_is_refused() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server)).await.expect("a lock");
    let mut resource = Resource::default();
    let (mut holder, fence) = holder(&server);
    assert!(resource.accepts(fence));
    holder.stop();
    let (began, next) = (Instant::now(), claim(1));
    let granted = wait(&lock, &next, LONG).await;
    let took = began.elapsed();
    assert!(took < LEASE + Duration::from_millis(250), "{took:?}");
    assert!(resource.accepts(granted.fence.expect("a fence")));
    holder.resume();
    holder.says("lost");
    assert!(!resource.accepts(fence), "the late one was let in");
    assert_eq!(lock.renew(&next, LONG).await.expect("an answer"), Renew::Held);
}

#[tokio::test]
async fn the_lock_is_taken_from_a_holder_that_stands_still_and_never_from_one_that_renews() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(options(&server)).await.expect("a lock");
    let task = Task::Hold { lease_ms: 3_000 };
    let mut holder = Process::start("redis", &server.url(), "-", task);
    let fence: u64 = holder.says("held").parse().expect("a fence");
    let takes = |from| lock.take_over(Request::new(claim(1), LONG), from);
    let seen = busy(&lock, &claim(1)).await.holder.expect("it tells");
    assert_eq!(seen.grant, fence);
    // It is alive, and by now another one to who has seen it before.
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    assert!(matches!(takes(seen).await.expect("an answer"), Attempt::Busy(_)));
    holder.stop();
    let seen = busy(&lock, &claim(1)).await.holder.expect("it tells");
    let winners = futures_util::future::join_all((0..16).map(|_| takes(seen))).await;
    let mut winners = winners.into_iter().filter_map(|attempt| match attempt {
        Ok(Attempt::Granted(grant)) => grant.fence,
        _ => None,
    });
    assert!(winners.next().is_some_and(|next| next > fence));
    assert_eq!(winners.next(), None);
    holder.resume();
    holder.says("lost");
}

#[tokio::test]
async fn a_holder_of_a_majority_that_is_killed_keeps_it_no_longer_than_its_lease() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let urls = servers.iter().map(RedisServer::url).collect::<Vec<_>>().join(",");
    let mut holder = Process::start("redlock", &urls, "-", Task::Hold { lease_ms: 600 });
    holder.says("held");
    let lock = Redlock::connect(servers.iter().map(options)).await.expect("a lock");
    busy(&lock, &claim(1)).await;
    holder.kill();
    let (began, next) = (Instant::now(), claim(1));
    wait(&lock, &next, LONG).await;
    let took = began.elapsed();
    assert!(took < LEASE + Duration::from_millis(250), "{took:?}");
    assert_eq!(lock.release(next).await.expect("an answer"), Released::Freed);
    take(&lock, &claim(1), LONG).await;
}
