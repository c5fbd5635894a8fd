//! Batches: many keys at once.

mod answers;
mod calls;
mod coalescing;
mod deadlines;
mod leaving;
mod query;

use bellwether::batch::Batched;
use bellwether::service::{ReadThrough, ReadThroughLayerBuilder};
use bellwether::store::Store;
use bellwether::{CacheStatus, Error, Key, ReadThroughLayer, SharedError};
use bellwether_testkit::caches::{MINUTE, NEVER, NO_TIME, key};
use bellwether_testkit::loaders::Refusal;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower::Layer;

use self::query::Query;

type KeyOf = fn(&u64) -> Option<Key>;
type Catalog = ReadThrough<Batched<Query>, KeyOf>;
type Fault = Error<Refusal>;
type Answered = (Result<u64, Fault>, CacheStatus);

/// Items from here on have no key.
const KEYLESS: u64 = 1_000_000;

/// A layer that keeps answers for a minute, and remembers no failures.
fn layer(store: impl Store) -> ReadThroughLayerBuilder<KeyOf> {
    let key_of: KeyOf = |item| (*item < KEYLESS).then(|| key(*item));
    let layer = ReadThroughLayer::builder(store, key_of).ttl(MINUTE).jitter(0.0);
    layer.failure_windows(NO_TIME, NO_TIME)
}

/// What a process of the fleet has: a layer of its own, over the store that all share.
fn catalog(store: impl Store, query: &Query) -> Catalog {
    layer(store).build().unwrap().layer(Batched::new(query.clone()))
}

/// A batch that is under way from now on.
fn ask_many(catalog: &Catalog, items: impl IntoIterator<Item = u64>) -> JoinHandle<Vec<Answered>> {
    tokio::spawn(catalog.load_many(items).with_status())
}

/// A single request that is under way from now on.
fn ask(catalog: &Catalog, item: u64) -> JoinHandle<Result<u64, Fault>> {
    tokio::spawn(catalog.load(item))
}

/// Waits for the outcome of a task.
async fn ended<T>(asked: JoinHandle<T>) -> T {
    timeout(NEVER, asked).await.expect("no caller is stuck").expect("no panic")
}

/// The answers to a batch of which none may fail.
async fn answers(asked: JoinHandle<Vec<Answered>>) -> Vec<u64> {
    ended(asked).await.into_iter().map(|(answer, _)| answer.expect("an answer")).collect()
}

async fn statuses(asked: JoinHandle<Vec<Answered>>) -> Vec<CacheStatus> {
    ended(asked).await.into_iter().map(|(_, status)| status).collect()
}

/// The batch loader's error.
fn fault(answer: Result<u64, Fault>) -> SharedError<Refusal> {
    match answer {
        Err(Error::Load(error)) => error,
        other => panic!("{other:?} is no error of the loader"),
    }
}
