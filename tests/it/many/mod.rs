//! Batches: many keys at once.

mod answers;
mod calls;
mod coalescing;
mod deadlines;
mod leaving;
mod query;

use bellwether::batch::BatchFuture;
use bellwether::store::Store;
use bellwether::{Cache, CacheBuilder, CacheStatus, Error, SharedError};
use bellwether_testkit::caches::{MINUTE, NEVER, NO_TIME};
use bellwether_testkit::loaders::Refusal;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::query::Query;

type Fault = Error<Refusal>;
type Answered = (Result<u64, Fault>, CacheStatus);

/// What a process of the fleet has: a cache of its own, over the store that all share.
#[derive(Clone)]
struct Catalog {
    cache: Cache<u64, u64>,
    query: Query,
}

impl Catalog {
    fn new(cache: CacheBuilder<u64, u64>, query: &Query) -> Self {
        Self { cache: cache.build().unwrap(), query: query.clone() }
    }

    fn load_many(&self, items: impl IntoIterator<Item = u64>) -> BatchFuture<u64, Refusal> {
        let query = self.query.clone();
        self.cache.get_or_load_many(items, move |items| query.load(items))
    }

    /// A batch of one.
    async fn load(self, item: u64) -> Result<u64, Fault> {
        self.load_many([item]).await.remove(0)
    }
}

/// A cache that keeps answers for a minute, and remembers no failures.
fn builder<V>(store: impl Store) -> CacheBuilder<u64, V> {
    let cache = Cache::builder("item", store).ttl(MINUTE).jitter(0.0);
    cache.failure_windows(NO_TIME, NO_TIME)
}

fn catalog(store: impl Store, query: &Query) -> Catalog {
    Catalog::new(builder(store), query)
}

/// A batch that is under way from now on.
fn ask_many(catalog: &Catalog, items: impl IntoIterator<Item = u64>) -> JoinHandle<Vec<Answered>> {
    tokio::spawn(catalog.load_many(items).with_status())
}

/// A single request that is under way from now on.
fn ask(catalog: &Catalog, item: u64) -> JoinHandle<Result<u64, Fault>> {
    tokio::spawn(catalog.clone().load(item))
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
