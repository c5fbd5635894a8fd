//! What is known of a process that was killed: its last report, and exactly the calls in flight then.

use bellwether_testkit::ledger::LoadLedger;

use super::book::{Book, CALLERS, begin, end, open_books};
use crate::fleet::Fleet;
use crate::messages::Sums;
use crate::outcomes::{Outcomes, Scrape};

/// A process that was killed.
pub(super) struct KilledProcess {
    /// Its last report.
    pub(super) sums: Sums,
    /// What its callers were told.
    pub(super) told: Outcomes,
}

/// Kills a process in the middle of a load that is held, and lets the others load.
pub(super) async fn kill_a_leader(
    fleet: &Fleet,
    books: &mut Vec<Book>,
    ledger: &LoadLedger,
    key: u64,
) -> KilledProcess {
    let mut loads = fleet.database.hold(key);
    let mut leader = books.remove(0);
    leader.worker.begin(key, key, CALLERS).await;
    let _held = loads.next().await;
    begin(books, key).await;
    // All its callers wait, and none has an answer: it has counted the earlier ones, and no other.
    let scrape = leader.has_waiters(CALLERS).await;
    scrape.is_settled();
    assert_eq!(scrape.outcomes, leader.told());
    // Its load has committed a row and not ended: it is the one load in flight.
    let rows = leader.rows(ledger);
    assert_eq!((scrape.loads_started, scrape.loads_ended + 1), (rows, rows));
    let sums = leader.worker.report().await.sums;
    leader.worker.kill();
    drop(loads);
    end(books, key).await;
    assert_eq!(leader.rows(ledger), rows, "its last report has all its loads");
    KilledProcess { sums, told: leader.told() }
}

fn lacks_only_calls_in_flight(killed: &Book, before: &Scrape, last: &Scrape, rows: u64) {
    last.is_published();
    // Every call that was over before is in it, as it was told; and of those in flight, none twice.
    assert_eq!(before.outcomes, killed.told());
    assert!(last.outcomes.includes(&before.outcomes), "{before:?} {last:?}");
    let calls = IN_FLIGHT * CALLERS as u64;
    assert!(last.requests <= before.requests + calls, "{before:?} {last:?}");
    // Each key in flight has one load at most. One that has ended is committed, and one that was
    // not in flight is not.
    assert_eq!(before.loads_started, before.loads_ended);
    let most = before.loads_ended + IN_FLIGHT;
    assert!(last.loads_started <= most, "{before:?} {last:?}");
    assert!((last.loads_ended..=most).contains(&rows), "{rows}: {before:?} {last:?}");
}

/// How many processes are killed, one after the other.
const ROUNDS: u64 = 4;

/// Bursts for this many keys are in flight when a process is killed.
const IN_FLIGHT: u64 = 5;

/// Nothing is held, so at its last report and at its end each call in flight may have been answered or
/// not, and each load in flight committed or not. All others are in its report.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_before_a_kill_lacks_at_most_the_calls_in_flight() {
    let fleet = Fleet::start().await;
    let ledger = LoadLedger::create();
    let mut books = open_books(&fleet, &ledger).await;
    for round in 0..ROUNDS {
        let keys = round * IN_FLIGHT..(round + 1) * IN_FLIGHT;
        let mut killed = books.remove(0);
        killed.worker.is_idle().await;
        let before = killed.worker.scrape().await;
        for key in keys.clone() {
            killed.worker.begin(key, key, CALLERS).await;
        }
        let last = killed.worker.scrape().await;
        killed.worker.kill();
        lacks_only_calls_in_flight(&killed, &before, &last, killed.rows(&ledger));
        for key in keys {
            begin(&books, key).await;
            end(&books, key).await;
        }
    }
    for book in &books {
        book.is_balanced(&ledger).await;
    }
}
