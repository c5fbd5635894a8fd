//! Answers that are not fresh any more, and when they will do.

mod early;
mod forced;
mod fresh;
mod if_error;
mod revalidate;
mod slow;

use bellwether::store::{Lifetimes, Store};
use bellwether::{CacheStatus, MemoryStore, ReadThroughLayer, StaleReason};
use bellwether_testkit::caches::{JSON, KeyOf, MINUTE, Settled, layer, put_for};
use tokio::time::sleep;

use crate::support::store::Scripted;

type Place = fn(&MemoryStore) -> Scripted;

/// A store that is peeked into, and one that has to be asked.
const PLACES: [Place; 2] = [Scripted::over, Scripted::away];

/// What is fresh for a minute is given out for another one, while it is loaded anew.
fn revalidating(store: impl Store) -> ReadThroughLayer<KeyOf> {
    layer(store).stale_while_revalidate(MINUTE)
}

/// What is fresh for a minute is given out for another one, if it cannot be loaded anew.
fn surviving(store: impl Store) -> ReadThroughLayer<KeyOf> {
    layer(store).stale_if_error(MINUTE)
}

/// A store with the answer 42, which is stale from now on, for as long as the windows say.
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

/// Why a stale answer was given out.
fn why((answer, status): &Settled) -> StaleReason {
    match (answer, status) {
        (Ok(42), CacheStatus::Stale { why, .. }) => *why,
        other => panic!("{other:?} is not the stale answer"),
    }
}
