//! What a hand-over costs.

use std::cell::Cell;
use std::sync::Mutex;
use std::time::Duration;

use bellwether::store::Claim;
use bellwether_lock::{Attempt, Lock, ZooKeeperLock};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::board::{Board, claim, free, key, request, take, wait};

const WAITERS: usize = 8;
const ROUNDS: usize = 4;

/// When a holder began to release the key, and how long after that the next one began.
#[derive(Default)]
struct HandOvers(Mutex<(Option<Instant>, Vec<Duration>)>);

impl HandOvers {
    fn begins(&self) {
        let mut times = self.0.lock().unwrap();
        let took = times.0.take().map(|released| released.elapsed());
        times.1.extend(took);
    }

    fn releases(&self) {
        self.0.lock().unwrap().0 = Some(Instant::now());
    }

    fn median(&self) -> Duration {
        let times = &mut self.0.lock().unwrap().1;
        times.sort();
        times[times.len() / 2]
    }
}

async fn poll(lock: &ZooKeeperLock, claim: &Claim) {
    while let Attempt::Busy(_) = lock.acquire(request(claim, Duration::ZERO)).await.unwrap() {
        sleep(Duration::from_millis(50)).await;
    }
}

/// Eight tasks ask for the key at once, `ROUNDS` times each. Gives how long it was free between two
/// holders.
async fn hand_over(locks: &[ZooKeeperLock], polls: bool) -> Duration {
    let hand_overs = HandOvers::default();
    let turns = locks.iter().map(async |lock| {
        for _ in 0..ROUNDS {
            let claim = claim();
            match polls {
                true => poll(lock, &claim).await,
                false => drop(wait(lock, &claim).await),
            }
            hand_overs.begins();
            sleep(Duration::from_millis(20)).await;
            hand_overs.releases();
            free(lock, claim).await;
            // A task that asks again at once would hand over to itself.
            sleep(Duration::from_millis(60)).await;
        }
    });
    join_all(turns).await;
    hand_overs.median()
}

#[tokio::test]
async fn a_watched_hand_over_is_faster_than_polling() {
    let board = Board::start().await;
    let locks = join_all((0..WAITERS).map(|_| board.lock())).await;
    let watched = hand_over(&locks, false).await;
    let polled = hand_over(&locks, true).await;
    println!("a hand-over took {watched:?}, and {polled:?} by polling");
    assert!(watched < polled, "{watched:?}, and {polled:?} by polling");
}

/// Create a node, list the queue, watch the node before, list again, and remove the node.
#[tokio::test]
async fn a_claim_that_waits_costs_five_requests() {
    let board = Board::start().await;
    let lock = board.lock().await;
    let mut held = claim();
    take(&lock, &held).await;
    let asked = Cell::new(0);
    // To ask for a number is a packet as well.
    let number = |name| {
        asked.set(asked.get() + 1);
        board.server.number(name)
    };
    let before = number("zk_packets_received") - asked.get();
    for _ in 0..20 {
        let next = claim();
        let waiting = next.clone();
        let waiter = lock.clone();
        let waits = tokio::spawn(async move { wait(&waiter, &waiting).await });
        while number("zk_watch_count") == 0 {
            tokio::task::yield_now().await;
        }
        free(&lock, std::mem::replace(&mut held, next)).await;
        waits.await.expect("no panic");
    }
    let requests = number("zk_packets_received") - asked.get() - before;
    // Unused sessions send pings, too.
    assert!((100..=106).contains(&requests), "20 hand-overs took {requests} requests");
    assert_eq!(board.nodes(&key()).await.len(), 1);
}
