//! Answers that are not fresh any more, and when they are served.

mod early;
mod forced;
mod fresh;
mod if_error;
mod revalidate;
mod slow;

use bellwether::service::ReadThroughLayerBuilder;
use bellwether::store::Store;
use bellwether::{CacheStatus, Lifetimes, MemoryStore, StaleReason};
use bellwether_testkit::caches::{Answered, JSON, KeyOf, MINUTE, layer, put_for};
use tokio::time::sleep;

use crate::support::store::{Faulty, local, remote};

type Place = fn(&MemoryStore) -> Faulty;

/// A store that is peeked into, and one that has to be asked.
const PLACES: [Place; 2] = [local, remote];

/// An answer is fresh for a minute, and is served stale for another one while it is loaded again.
fn revalidating(store: impl Store) -> ReadThroughLayerBuilder<KeyOf> {
    layer(store).stale_while_revalidate(MINUTE)
}

/// An answer is fresh for a minute, and is served stale for another one if it cannot be loaded
/// again.
fn surviving(store: impl Store) -> ReadThroughLayerBuilder<KeyOf> {
    layer(store).stale_if_error(MINUTE)
}

/// A store with the answer 42, which is stale from now on, for its stale lifetimes.
async fn stale_for(windows: fn(Lifetimes) -> Lifetimes) -> MemoryStore {
    let store = MemoryStore::new(10);
    put_for(&store, 1, "42", JSON, windows(Lifetimes::fresh_for(MINUTE))).await;
    sleep(MINUTE).await;
    store
}

async fn stale_while_revalidating() -> MemoryStore {
    stale_for(|windows| windows.stale_while_revalidate(MINUTE)).await
}

async fn stale_if_error() -> MemoryStore {
    stale_for(|windows| windows.stale_if_error(MINUTE)).await
}

/// Why a stale answer was served.
fn why((answer, status): &Answered) -> StaleReason {
    match (answer, status) {
        (Ok(42), CacheStatus::Stale { why, .. }) => *why,
        other => panic!("{other:?} is not the stale answer"),
    }
}
