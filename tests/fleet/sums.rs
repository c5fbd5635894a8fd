//! The statistics of eight processes add up: to the callers of all, and to the rows that the
//! database gave.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use crate::fleet::{Fleet, begin, end};
use crate::messages::{Answer, How, Setup, Sums};
use crate::process::Worker;
use crate::storm::{Fared, Storm};

const PROCESSES: usize = 8;
const CALLERS: usize = 25;

/// Each burst has a key of its own.
const KEYS: std::ops::Range<u64> = 0..4;
const OF_THE_KILLED: u64 = 100;
const STORMY: u64 = 200;

#[tokio::test(flavor = "multi_thread")]
async fn statistics_add_up_over_bursts_invalidations_leaves_and_kills() {
    let fleet = Fleet::start().await;
    let setup = Setup { lease_ms: 1_000, ..fleet.setup() };
    let mut workers = fleet.workers(PROCESSES, &setup).await;
    let mut told = Told::default();

    for key in KEYS {
        told.note(burst(&fleet, &workers, key).await);
        told.callers += LEAVING as u64;
    }
    let (killed, answers) = kill_a_leader(&fleet, &mut workers).await;
    told.note(answers);
    let storms = storm(&workers).await;
    told.callers += storms.calls() as u64;

    let mut sums = killed;
    for worker in &workers {
        worker.is_idle().await;
        sums += worker.report().await.sums;
    }
    println!("{sums:?}");
    assert_eq!(sums.requests, told.callers);
    assert_eq!(sums.left, LEAVING as u64 * KEYS.end);
    assert_eq!(sums.loads, fleet.database.all_loads(), "each row that the database gave");
    assert_eq!(
        sums.collapsed,
        sums.requests - sums.led - sums.hits - sums.stale - sums.bypassed - sums.failed - sums.left,
    );
    assert_eq!((sums.failed, sums.bypassed, sums.stale), (0, 0, 0), "{:?}", storms.error);
    assert_eq!(sums.invalidations, KEYS.end + INVALIDATIONS);
    assert!(sums.granted >= sums.loads, "each of these loads had a lease");
    assert!(sums.pushes > 0, "waiters were woken by pushes");
    // Of the callers of storms, only hits are told.
    let hits = told.hits + storms.hits;
    assert_eq!(sums.hits, hits);
    assert!(sums.led >= told.led && sums.collapsed >= told.collapsed, "{told:?}");
    assert!(sums.led <= sums.loads, "no leader is counted twice");
}

/// What callers were told.
#[derive(Debug, Default)]
struct Told {
    callers: u64,
    led: u64,
    collapsed: u64,
    hits: u64,
}

impl Told {
    fn note(&mut self, answers: Vec<Answer>) {
        for answer in answers {
            self.callers += 1;
            match answer.how {
                How::Led { .. } => self.led += 1,
                How::CollapsedElsewhere | How::CollapsedHere => self.collapsed += 1,
                How::Hit => self.hits += 1,
                How::Bypassed | How::Failed | How::Stale => panic!("{answer:?}"),
            }
        }
    }
}

/// A burst in which some callers leave, and in whose middle the key is invalidated.
async fn burst(fleet: &Fleet, workers: &[Worker], key: u64) -> Vec<Answer> {
    let mut loads = fleet.database.hold(key);
    begin(workers, key, key, CALLERS).await;
    let first = loads.next().await;
    workers[0].leave(key, (CALLERS - LEAVING..CALLERS).collect()).await;
    workers[1].invalidate(key).await;
    first.answer();
    let mut ended = pin!(end(workers, key));
    // Callers that joined after the invalidation need another load.
    let answers = loop {
        tokio::select! {
            answers = &mut ended => break answers,
            load = loads.next() => load.answer(),
        }
    };
    assert_eq!(answers.len(), PROCESSES * CALLERS - LEAVING);
    answers
}

/// Kills a process in the middle of its load, and lets the others load. Gives its sums at its end,
/// and the answers of the others.
async fn kill_a_leader(fleet: &Fleet, workers: &mut Vec<Worker>) -> (Sums, Vec<Answer>) {
    let key = OF_THE_KILLED;
    let mut loads = fleet.database.hold(key);
    let mut leader = workers.remove(0);
    leader.begin(key, key, CALLERS).await;
    let _held = loads.next().await;
    begin(workers, key, key, CALLERS).await;
    // Its callers have no answer, and never will: it has not counted them.
    let sums = leader.report().await.sums;
    leader.kill();
    drop(loads);
    (sums, end(workers, key).await)
}

/// Callers everywhere ask again and again, while the key is invalidated.
async fn storm(workers: &[Worker]) -> Fared {
    let storm = Storm { key: STORMY, callers: 4, millis: 1_000, rest_millis: 5 };
    let storms = workers.iter().map(|worker| worker.storm(storm));
    let invalidating = async {
        for _ in 0..INVALIDATIONS {
            workers[0].invalidate(STORMY).await;
            sleep(Duration::from_millis(40)).await;
        }
    };
    let (fared, ()) = tokio::join!(join_all(storms), invalidating);
    Fared::all(fared)
}

const LEAVING: usize = 3;
const INVALIDATIONS: u64 = 10;
