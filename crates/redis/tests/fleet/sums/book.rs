//! The book of one process: what its callers were told, against what it says of itself.

use std::cell::Cell;
use std::time::{Duration, Instant};

use bellwether_testkit::ledger::LoadLedger;
use futures_util::future::join_all;
use tokio::time::sleep;

use crate::fleet::Fleet;
use crate::messages::{Setup, Sums};
use crate::outcomes::{Outcomes, Scrape};
use crate::process::Worker;
use crate::storm::Storm;

/// A process, and what its callers were told.
pub(super) struct Book {
    pub(super) worker: Worker,
    /// Its number in the ledger.
    process: u64,
    told: Cell<Outcomes>,
}

/// Opens the books of eight processes.
pub(super) async fn open_books(fleet: &Fleet, ledger: &LoadLedger) -> Vec<Book> {
    let setup = Setup { lease_ms: 1_000, ..fleet.setup() };
    join_all((0..PROCESSES).map(|process| Book::open(process, ledger, &setup))).await
}

/// Lets callers in each process ask for a key.
pub(super) async fn begin(books: &[Book], key: u64) {
    join_all(books.iter().map(|book| book.worker.begin(key, key, CALLERS))).await;
}

/// Awaits the callers in each process that have asked for a key.
pub(super) async fn end(books: &[Book], key: u64) {
    join_all(books.iter().map(|book| book.end(key))).await;
}

impl Book {
    async fn open(process: u64, ledger: &LoadLedger, setup: &Setup) -> Self {
        let ledger = Some((ledger.path().to_owned(), process));
        let worker = Worker::start(Setup { ledger, ..setup.clone() }).await;
        Self { worker, process, told: Cell::default() }
    }

    pub(super) fn told(&self) -> Outcomes {
        self.told.get()
    }

    fn note(&self, told: Outcomes) {
        let mut sum = self.told.get();
        sum += told;
        self.told.set(sum);
    }

    /// Awaits the callers of a burst that have not left.
    async fn end(&self, burst: u64) {
        self.note(Outcomes::of(&self.worker.end(burst).await));
    }

    /// Drops some callers of a burst that is held, so none of them has an answer.
    pub(super) async fn leave(&self, burst: u64, callers: Vec<usize>) {
        self.note(Outcomes { left: callers.len() as u64, ..Outcomes::default() });
        self.worker.leave(burst, callers).await;
    }

    /// Lets callers come and go.
    pub(super) async fn waver(&self, key: u64, stays: Vec<u64>) {
        let callers = stays.len();
        let answers = self.worker.waver(key, stays).await;
        let left = (callers - answers.len()) as u64;
        self.note(Outcomes { left, ..Outcomes::of(&answers) });
    }

    pub(super) async fn storm(&self, storm: Storm) {
        let fared = self.worker.storm(storm).await;
        assert_eq!((fared.failed, fared.stale), (0, 0), "{:?}", fared.error);
        self.note(fared.told);
    }

    /// How many rows its loads have committed.
    pub(super) fn rows(&self, ledger: &LoadLedger) -> u64 {
        ledger.rows_of(self.process)
    }

    /// Waits until so many callers wait in it, whose load is held.
    pub(super) async fn has_waiters(&self, waiters: usize) -> Scrape {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let scrape = self.worker.scrape().await;
            if scrape.waiters == waiters as u64 {
                return scrape;
            }
            assert!(Instant::now() < deadline, "{waiters} callers wait: {scrape:?}");
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Asserts that it has counted each caller once, as that was told, and each row once. Returns
    /// its sums.
    pub(super) async fn is_balanced(&self, ledger: &LoadLedger) -> Sums {
        self.worker.is_idle().await;
        let scrape = self.worker.scrape().await;
        scrape.is_settled();
        assert_eq!(scrape.outcomes, self.told());
        let Outcomes { hits, stale, led, collapsed, bypassed, failed, left } = scrape.outcomes;
        let others = led + hits + stale + bypassed + failed + left;
        assert_eq!(collapsed, self.told().total() - others);
        let rows = self.rows(ledger);
        assert_eq!((scrape.loads_started, scrape.loads_ended), (rows, rows));
        // Each load has one leader. It counts as such and not as collapsed, or it has left.
        assert!((led + bypassed..=led + bypassed + left).contains(&rows), "{rows}: {scrape:?}");
        assert_eq!((scrape.flights, scrape.waiters, scrape.queued_loads), (0, 0, 0));
        self.worker.report().await.sums
    }
}

pub(super) const PROCESSES: u64 = 8;

/// In each burst and process.
pub(super) const CALLERS: usize = 25;

/// How long callers may take to wait. Nothing that works comes near it.
const PATIENCE: Duration = Duration::from_secs(120);
