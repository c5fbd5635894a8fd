//! While its store does not answer, a process is a cache of its own.

mod contract;
mod failures;
mod histories;
mod invalidations;
mod loads;
mod verbs;

use std::time::Duration;

use bellwether::MemoryStore;
use bellwether::store::{OutageStore, StoreErrorKind};

use crate::support::store::{Faulty, remote};

/// How long entries are fresh without the primary.
const TTL: Duration = Duration::from_secs(1);

/// How a primary fails while it is away.
const OUTAGES: [StoreErrorKind; 6] = [
    StoreErrorKind::Down,
    StoreErrorKind::Misconfigured,
    StoreErrorKind::NotReady,
    StoreErrorKind::Refused,
    StoreErrorKind::TimedOut,
    StoreErrorKind::Unreachable,
];

/// A store over a primary that a test can make fail.
fn primary() -> (Faulty, OutageStore<Faulty>) {
    let primary = remote(&MemoryStore::new(1_000));
    (primary.clone(), OutageStore::new(primary, TTL))
}

/// The same, and the primary does not answer.
fn down() -> (Faulty, OutageStore<Faulty>) {
    let (primary, store) = primary();
    primary.on_any().fail(StoreErrorKind::Unreachable);
    (primary, store)
}
