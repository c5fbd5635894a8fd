//! Killed and stopped processes; exclusion over processes.

use std::fs;
use std::time::Duration;

use tokio::time::Instant;

use crate::board::{Board, GRACE, PATIENCE, SESSION, claim, fence, free};
use crate::process::Worker;

/// A resource that remembers the largest fence it has seen, and refuses who comes with less.
#[derive(Default)]
struct Resource {
    largest: u64,
}

impl Resource {
    fn takes(&mut self, fence: u64) -> bool {
        let takes = fence >= self.largest;
        self.largest = self.largest.max(fence);
        takes
    }
}

/// Case 52.
#[tokio::test]
async fn the_key_of_a_killed_process_is_free_when_its_session_ends() {
    let board = Board::start().await;
    let mut holder = Worker::holder(&board.server.hosts());
    let held: u64 = holder.says("holds ").await.parse().unwrap();
    let (lock, next) = (board.lock().await, claim());
    let waiter = board.waiter(&lock, &next, 2).await;
    holder.kill();
    let began = Instant::now();
    let grant = waiter.await.expect("no panic");
    let took = began.elapsed();
    assert!(took < SESSION + GRACE, "it took {took:?}");
    assert!(fence(&grant) > held);
    free(&lock, next).await;
}

#[tokio::test]
async fn a_process_that_stood_still_is_told_and_its_fence_is_refused() {
    let board = Board::start().await;
    let mut resource = Resource::default();
    let mut holder = Worker::holder(&board.server.hosts());
    let held: u64 = holder.says("holds ").await.parse().unwrap();
    let written: u64 = holder.says("writes ").await.parse().unwrap();
    assert!(written == held && resource.takes(written));
    let (lock, next) = (board.lock().await, claim());
    let waiter = board.waiter(&lock, &next, 2).await;
    holder.signal("STOP");
    let began = Instant::now();
    let grant = waiter.await.expect("no panic");
    let took = began.elapsed();
    assert!(took < SESSION + GRACE, "it took {took:?}");
    assert!(resource.takes(fence(&grant)));
    holder.signal("CONT");
    let began = Instant::now();
    let written: u64 = holder.says("writes ").await.parse().unwrap();
    assert!(!resource.takes(written), "{written} was taken after {}", fence(&grant));
    holder.says("lost").await;
    assert!(began.elapsed() < GRACE, "it was told after {:?}", began.elapsed());
    free(&lock, next).await;
}

/// Cases 6 to 8 and 80. `BELLWETHER_LOCK_ROUNDS` sets how often each of the 64 tasks counts (10).
#[tokio::test]
async fn eight_processes_of_eight_tasks_count_exactly_and_their_fences_grow() {
    const EACH: usize = 8;
    let rounds = std::env::var("BELLWETHER_LOCK_ROUNDS").map_or(10, |text| text.parse().unwrap());
    let board = Board::start().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("count");
    fs::write(&file, "0 0").unwrap();
    let hosts = board.server.hosts();
    let workers = (0..EACH).map(|_| Worker::counter(&hosts, &file, EACH, rounds));
    let began = Instant::now();
    for mut worker in workers.collect::<Vec<_>>() {
        let patience = PATIENCE + Duration::from_millis(100) * u32::try_from(rounds * 64).unwrap();
        let done = tokio::time::timeout(patience, worker.says_at_last("done")).await;
        done.expect("it comes to an end");
    }
    let text = fs::read_to_string(&file).unwrap();
    let count = text.split(' ').next().unwrap();
    assert_eq!(count, (EACH * EACH * rounds).to_string());
    println!("{count} rounds took {:?}", began.elapsed());
    board.has_in_line(claim().key(), 0).await;
}
