//! Promise 4: callers may leave at any time. The others are answered, and nothing is left behind.

use bellwether_testkit::{clock, seeds};
use futures_util::future::join_all;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::index::sample;

use crate::answer::{Answer, How};
use crate::fleet::{Fleet, SLACK, all_have, begin, count, end, gather, last_after};
use crate::messages::Setup;
use crate::process::Worker;

const PROCESSES: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_leave_at_random_take_nothing_from_the_others() {
    let mut rng = seeds::begin();
    let fleet = Fleet::start().await;
    let workers = fleet.workers(PROCESSES, &fleet.setup()).await;
    for key in 0..ROUNDS {
        let mut loads = fleet.database.hold(key);
        begin(&workers, key, key, CALLERS).await;
        let stays = stays_of_each(&mut rng);
        let leaving = leaving_of_each(&mut rng);
        tokio::join!(leave(&workers, key, leaving), waver(&workers, key, stays));
        loads.next().await.answer();
        drop(loads);
        let answers = end(&workers, key).await;
        all_have(&answers, 1);
        assert_eq!(answers.len(), PROCESSES * (CALLERS - LEAVING));
        assert_eq!(fleet.database.loads(key), 1);
    }
    all_are_idle(&workers).await;
    fleet.nothing_is_left_behind();
}

/// Callers that come and go during loads, commits and push messages, and none stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_all_callers_leave_is_still_loaded_once() {
    let mut rng = seeds::begin();
    let fleet = Fleet::start().await;
    let workers = fleet.workers(PROCESSES, &fleet.setup()).await;
    for key in 0..ROUNDS {
        let answers = waver(&workers, key, stays_of_each(&mut rng)).await;
        all_have(&answers, 1);
        all_are_idle(&workers).await;
        // All callers may have left before any load began.
        all_have(&[workers[0].read(key).await], 1);
        assert_eq!(fleet.database.loads(key), 1);
    }
    fleet.nothing_is_left_behind();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_goes_on_for_other_processes_when_its_own_callers_have_left() {
    let fleet = Fleet::start().await;
    let workers = fleet.workers(PROCESSES, &fleet.setup()).await;
    let mut loads = fleet.database.hold(1);
    begin(&workers[..1], 1, 1, CALLERS).await;
    let load = loads.next().await;
    gather(&fleet, &workers[1..], 1, CALLERS).await;
    workers[0].leave(1, (0..CALLERS).collect()).await;
    load.answer();
    let answers = end(&workers[1..], 1).await;
    all_have(&answers, 1);
    assert_eq!(count(&answers, How::CollapsedElsewhere), answers.len());
    assert_eq!(fleet.database.loads(1), 1);
}

/// A push message reports the lease that was given up, so the waiter waits neither for its end nor
/// for a pause.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_load_is_taken_over_at_once() {
    let fleet = Fleet::start().await;
    let setup = Setup { cancels: true, ..fleet.setup_without_pauses() };
    let workers = fleet.workers(PROCESSES, &setup).await;
    let mut loads = fleet.database.hold(1);
    let before = fleet.calls();
    begin(&workers[..1], 1, 1, CALLERS).await;
    let first = loads.next().await;
    begin(&workers[1..], 1, 1, CALLERS).await;
    fleet.has_called(&before, "evalsha", PROCESSES as u64).await;
    let left = clock::now();
    workers[0].leave(1, (0..CALLERS).collect()).await;
    loads.next().await.answer();
    let answers = end(&workers[1..], 1).await;
    all_have(&answers, 1);
    let last = last_after(&answers, left);
    println!("cancelled: the last answer came {last:?} after the last caller had left");
    assert!(last < SLACK, "{last:?}");
    assert_eq!(fleet.database.loads(1), 2);
    drop(first);
    fleet.nothing_is_left_behind();
}

async fn leave(workers: &[Worker], burst: u64, leaving: Vec<Vec<usize>>) {
    let pairs = workers.iter().zip(leaving);
    join_all(pairs.map(|(worker, leaving)| worker.leave(burst, leaving))).await;
}

async fn all_are_idle(workers: &[Worker]) {
    join_all(workers.iter().map(Worker::is_idle)).await;
}

async fn waver(workers: &[Worker], key: u64, stays: Vec<Vec<u64>>) -> Vec<Answer> {
    let pairs = workers.iter().zip(stays);
    let answers = join_all(pairs.map(|(worker, stays)| worker.waver(key, stays))).await;
    answers.concat()
}

/// Which callers of each process leave.
fn leaving_of_each(rng: &mut StdRng) -> Vec<Vec<usize>> {
    let leaving = (0..PROCESSES).map(|_| sample(rng, CALLERS, LEAVING).into_vec());
    leaving.collect()
}

/// How long each caller of each process stays, in us.
fn stays_of_each(rng: &mut StdRng) -> Vec<Vec<u64>> {
    let mut stays = || (0..CALLERS).map(|_| rng.random_range(0..8_000)).collect();
    (0..PROCESSES).map(|_| stays()).collect()
}

const ROUNDS: u64 = 30;
const CALLERS: usize = 40;
const LEAVING: usize = 30;
