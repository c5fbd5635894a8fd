//! Redis is stopped, a process makes a thousand invalidations, and Redis is back: what all
//! processes read is checked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bellwether_testkit::clock::{self, Steady};
use futures_util::future::join_all;
use tokio::time::sleep;

use super::readers::Readers;
use super::{has_near, silence};
use crate::fleet::Fleet;
use crate::messages::{Event, RowCallers, Setup, TagOrder, What};
use crate::process::Worker;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_the_invalidations_that_were_made_while_redis_was_stopped() {
    let stage = OutageStage::set().await;
    let mut steady = Steady::begin();
    let mut readers = Readers::new(PROCESSES, silence(TIMEOUT_MS));
    readers.must_pass(&stage.all_ask().await);

    let over = AtomicBool::new(false);
    let asking = join_all(stage.workers.iter().map(|worker| ask_until(worker, &over)));
    let changing = async {
        let changes = stage.change_without_redis().await;
        over.store(true, Ordering::Relaxed);
        changes
    };
    let (mut histories, changes) = tokio::join!(asking, changing);
    histories[CHANGING].extend(changes);
    readers.must_pass(&histories);
    let meanwhile = readers.tally.bound;
    assert!(meanwhile > 0, "the process itself has read what it had invalidated");

    // From here on, all copies are bound.
    sleep(silence(TIMEOUT_MS)).await;
    let histories = stage.all_ask().await;
    readers.must_pass(&histories);
    steady.check();
    let bound = readers.tally.bound - meanwhile;
    println!("{meanwhile} reads were bound meanwhile, and {bound} later: {:#?}", readers.tally);
    let is_read = |event: &&Event| matches!(event.what, What::Read { .. });
    assert_eq!(bound, histories.iter().flatten().filter(is_read).count() as u64);
}

/// Four processes, two of them with a near tier.
struct OutageStage {
    fleet: Fleet,
    workers: Vec<Worker>,
}

impl OutageStage {
    async fn set() -> Self {
        let fleet = Fleet::start().await;
        let starting = (0..PROCESSES).map(|number| {
            let near = has_near(number);
            Worker::start(Setup { near, timeout_ms: TIMEOUT_MS, ..fleet.setup() })
        });
        let workers = join_all(starting).await;
        Self { fleet, workers }
    }

    async fn all_ask(&self) -> Vec<Vec<Event>> {
        join_all(self.workers.iter().map(|worker| worker.about_tags(TagOrder::Ask(ALL)))).await
    }

    /// Redis stops, and one process changes all rows. Then Redis goes on, and the invalidations are
    /// replayed.
    async fn change_without_redis(&self) -> Vec<Event> {
        let worker = &self.workers[CHANGING];
        self.fleet.redis.stop();
        let kept = worker.about_tags(TagOrder::InvalidateEach { rows: ROWS }).await;
        let asked = worker.about_tags(TagOrder::Ask(ALL)).await;
        self.fleet.redis.resume();
        worker.has_replayed().await;
        let ended = clock::now();
        let replayed = |kept: &Event| match kept.what {
            What::InvalidationKept { version } => {
                Event { ended, what: What::Invalidated { version }, ..*kept }
            }
            _ => panic!("it was to be kept: {kept:?}"),
        };
        let replayed = kept.iter().map(replayed).collect();
        [kept, asked, replayed].concat()
    }
}

/// Callers of a process ask for all rows, again and again.
async fn ask_until(worker: &Worker, over: &AtomicBool) -> Vec<Event> {
    let mut history = Vec::new();
    while !over.load(Ordering::Relaxed) {
        history.extend(worker.about_tags(TagOrder::Ask(ALL)).await);
        sleep(PAUSE).await;
    }
    history
}

const PROCESSES: usize = 4;
const ROWS: u64 = 1_000;
const ALL: RowCallers = RowCallers { callers: 8, rows: ROWS, per_row: 1 };

/// The process that changes rows. It has a near tier.
const CHANGING: usize = 0;

/// So that the histories do not grow too long.
const PAUSE: Duration = Duration::from_millis(100);

/// Long enough for a busy machine. While Redis is stopped, few requests wait for it.
const TIMEOUT_MS: u64 = 2_000;
