//! `max_loads`: the source never gets more than it was promised.

mod adaptive;
mod batches;
mod bound;
mod nested;
mod order;

use std::convert::Infallible;

use bellwether::store::StoreErrorKind;
use bellwether::{Cache, CacheBuilder, MemoryStore, Wait};
use bellwether_test::faulty::FaultyStore;
use bellwether_testkit::caches::MINUTE;
use futures_util::future::BoxFuture;

use crate::support::store::Faulty;

/// A store that answers, and one that does not.
fn stores() -> [Faulty; 2] {
    let down = FaultyStore::new(MemoryStore::new(20_000)).remote();
    down.on_any().fail(StoreErrorKind::Unreachable);
    [FaultyStore::new(MemoryStore::new(20_000)).remote(), down]
}

/// A cache whose callers wait for as long as it takes.
fn patient(name: &str, store: &Faulty) -> CacheBuilder<u64, u64> {
    Cache::builder(name, store.clone()).ttl(MINUTE).wait(Wait::at_most(MINUTE * 60))
}

type Loaded = Result<u64, bellwether::Error<Infallible>>;

/// Reads a key whose load reads the key below it, down to key 0.
fn descend(cache: Cache<u64, u64>, key: u64) -> BoxFuture<'static, Loaded> {
    let below = cache.clone();
    let load = async move || match key {
        0 => Ok::<_, Infallible>(0),
        _ => Ok(descend(below, key - 1).await.expect("an answer") + 1),
    };
    Box::pin(async move { cache.get_or_load(key, load).await })
}
