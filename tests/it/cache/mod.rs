//! `Cache`: a key, a function, an answer.

mod batches;
mod calls;
mod change;
mod faithful;
mod in_process;
mod invalidation;
mod postcard;
mod put;

use bellwether::store::Store;
use bellwether::{Cache, CacheBuilder, CacheStatus, Error};
use bellwether_testkit::caches::{MINUTE, NEVER, NO_TIME};
use bellwether_testkit::loaders::{Loader, Refusal};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower::ServiceExt;

/// An answer, and how it came about.
type Answered<V = usize> = (Result<V, Error<Refusal>>, CacheStatus);

/// A cache that keeps values for a minute, to the millisecond, and remembers no failures. Its keys
/// are those of the layers of these tests.
fn builder<K, V>(store: impl Store) -> CacheBuilder<K, V> {
    let builder = Cache::builder("item", store).ttl(MINUTE).jitter(0.0);
    builder.failure_windows(NO_TIME, NO_TIME)
}

fn cache(store: impl Store) -> Cache<u64, usize> {
    builder(store).build().expect("options")
}

/// A call that is under way from now on.
fn ask(cache: &Cache<u64, usize>, item: u64, loader: &Loader) -> JoinHandle<Answered> {
    let loader = loader.clone();
    tokio::spawn(cache.get_or_load(item, async move || loader.oneshot(item).await).with_status())
}

/// The answer to one call.
async fn asked(cache: &Cache<u64, usize>, item: u64, loader: &Loader) -> Answered {
    ended(ask(cache, item, loader)).await
}

async fn ended<T>(asked: JoinHandle<T>) -> T {
    timeout(NEVER, asked).await.expect("no caller is stuck").expect("no panic")
}
