//! The statistics and the metrics of eight processes add up: to what their callers were told, and to
//! the rows that their loads have committed to a database.

mod book;
mod kills;

use std::pin::pin;
use std::time::Duration;

use bellwether_testkit::ledger::LoadLedger;
use bellwether_testkit::seeds;
use futures_util::future::join_all;
use rand::Rng;
use tokio::time::sleep;

use self::book::{Book, CALLERS, PROCESSES, begin, end, open_books};
use self::kills::kill_a_leader;
use crate::fleet::Fleet;
use crate::messages::Sums;
use crate::storm::Storm;

/// Each burst has a key of its own.
const KEYS: std::ops::Range<u64> = 0..4;
const OF_THE_KILLED: u64 = 100;
const WAVERING: u64 = 200;
const STORMY: u64 = 300;

#[tokio::test(flavor = "multi_thread")]
async fn statistics_add_up_over_bursts_invalidations_leaves_and_kills() {
    let fleet = Fleet::start().await;
    let ledger = LoadLedger::create();
    let mut books = open_books(&fleet, &ledger).await;
    for key in KEYS {
        burst(&fleet, &books, key).await;
    }
    let killed = kill_a_leader(&fleet, &mut books, &ledger, OF_THE_KILLED).await;
    waver(&books).await;
    storm(&books).await;

    let mut sums = killed.sums;
    let mut told = killed.told;
    for book in &books {
        sums += book.is_balanced(&ledger).await;
        told += book.told();
    }
    println!("{sums:?}");
    assert_eq!(sums.requests, told.total());
    assert_eq!(sums.loads, ledger.rows(), "each row that a load has committed");
    assert_eq!(sums.loads, fleet.database.all_loads(), "each row that the database gave");
    assert_eq!(
        sums.collapsed,
        told.total() - sums.led - sums.hits - sums.stale - sums.bypassed - sums.failed - sums.left,
    );
    assert_eq!((sums.failed, sums.bypassed, sums.stale), (0, 0, 0));
    assert_eq!(sums.invalidations, KEYS.end + 2 * INVALIDATIONS);
    assert!(sums.granted >= sums.loads, "each of these loads had a lease");
    assert!(sums.pushes > 0, "waiters were woken by pushes");
    assert_eq!((sums.hits, sums.led, sums.collapsed), (told.hits, told.led, told.collapsed));
    assert!(sums.led <= sums.loads, "no leader is counted twice");
}

/// Without the store, each process loads for itself, and still counts each caller and each row once.
#[tokio::test(flavor = "multi_thread")]
async fn statistics_add_up_over_an_outage_of_the_store() {
    let mut fleet = Fleet::start().await;
    let ledger = LoadLedger::create();
    let books = open_books(&fleet, &ledger).await;
    burst(&fleet, &books, 0).await;
    fleet.redis.kill();
    for key in 1..=KEYS.end {
        begin(&books, key).await;
        end(&books, key).await;
    }
    let mut sums = Sums::default();
    for book in &books {
        sums += book.is_balanced(&ledger).await;
    }
    println!("{sums:?}");
    assert_eq!(sums.loads, ledger.rows());
    assert_eq!(sums.loads, fleet.database.all_loads());
    assert!(sums.bypassed >= KEYS.end * PROCESSES, "each process loads each key: {sums:?}");
    assert!(sums.collapsed > sums.bypassed, "and once for all its callers: {sums:?}");
}

/// A burst in which some callers leave, and in whose middle the key is invalidated.
async fn burst(fleet: &Fleet, books: &[Book], key: u64) {
    let mut loads = fleet.database.hold(key);
    begin(books, key).await;
    let first = loads.next().await;
    books[0].leave(key, (CALLERS - LEAVING..CALLERS).collect()).await;
    books[1].worker.invalidate(key).await;
    first.answer();
    let mut ended = pin!(end(books, key));
    // Callers that joined after the invalidation need another load.
    loop {
        tokio::select! {
            () = &mut ended => return,
            load = loads.next() => load.answer(),
        }
    }
}

/// Callers come and go at random, while the key is invalidated.
async fn waver(books: &[Book]) {
    let mut random = seeds::begin();
    let mut stays = || (0..4 * CALLERS).map(|_| random.random_range(0..200_000)).collect();
    let wavering = join_all(books.iter().map(|book| book.waver(WAVERING, stays())));
    tokio::join!(wavering, invalidate(&books[0], WAVERING));
}

/// Callers everywhere ask again and again, while the key is invalidated.
async fn storm(books: &[Book]) {
    let storm = Storm { key: STORMY, callers: 4, millis: 1_000, rest_millis: 5 };
    let storms = join_all(books.iter().map(|book| book.storm(storm)));
    tokio::join!(storms, invalidate(&books[0], STORMY));
}

async fn invalidate(book: &Book, key: u64) {
    for _ in 0..INVALIDATIONS {
        book.worker.invalidate(key).await;
        sleep(Duration::from_millis(40)).await;
    }
}

const LEAVING: usize = 3;
const INVALIDATIONS: u64 = 10;
