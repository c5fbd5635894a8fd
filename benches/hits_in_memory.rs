//! A hit through the whole layer on a `MemoryStore`, against a hit in moka.
//!
//! *Bare* is what one writes without this crate: a `moka::future::Cache<u64, V>`, asked by the
//! number itself. The other baseline is asked by the same [`Key`] as we are, made for each request
//! as our key function makes it.

use std::convert::Infallible;
use std::hint::black_box;
use std::thread;
use std::time::Duration;

use bellwether::{Error, Key, MemoryStore, ReadThroughLayer};
use moka::future::Cache;
use serde::{Serialize, de::DeserializeOwned};
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, Service, service_fn};

use crate::figures::Wanted;
use crate::paired::{Effort, Race, Took, timed};
use crate::product::{Page, Product};

pub(crate) fn run(effort: Effort) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    hit("two strings", &Product::new(SKU), &runtime, effort);
    hit("one Arc<str>", &Page::from("a page".repeat(100)), &runtime, effort);
    hit_by_two_threads(
        "two strings, 2 threads",
        &Product::new(SKU),
        &runtime,
        effort.in_long_turns(),
    );
}

/// The bounds of an answer that is stored.
trait Answer: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> Answer for T {}

fn hit<R: Answer>(case: &str, answer: &R, runtime: &Runtime, effort: Effort) {
    let mut catalog = catalog(answer, runtime);
    let (by_number, by_key) = caches(answer, runtime);
    let mut race = Race::new("memory", case);
    let ours = race.enter_async("bellwether", runtime, || catalog.call(black_box(SKU)));
    let bare = race.enter_async("moka by u64 (bare)", runtime, || async {
        by_number.get(&black_box(SKU)).await
    });
    let keyed = race
        .enter_async("moka by Key", runtime, || async { by_key.get(&key(&black_box(SKU))).await });
    let outcome = race.run(effort);
    outcome.print(&[ours, bare, keyed]);
    outcome.print_times(ours, bare, Wanted::AtMost(3.0));
    outcome.print_times(ours, keyed, Wanted::Nothing);
}

/// Two threads that want the same key at the same time.
fn hit_by_two_threads<R: Answer>(case: &str, answer: &R, runtime: &Runtime, effort: Effort) {
    let catalog = catalog(answer, runtime);
    let (by_number, _) = caches(answer, runtime);
    let mut race = Race::new("memory", case);
    let ours = race.enter("bellwether", THREADS, |times| {
        on_threads(|| {
            let mut catalog = catalog.clone();
            async move {
                for _ in 0..times {
                    black_box(catalog.call(black_box(SKU)).await.expect("a hit"));
                }
            }
        })
    });
    let bare = race.enter("moka by u64 (bare)", THREADS, |times| {
        on_threads(|| async {
            for _ in 0..times {
                black_box(by_number.get(&black_box(SKU)).await.expect("a hit"));
            }
        })
    });
    let outcome = race.run(effort);
    outcome.print(&[ours, bare]);
    outcome.print_times(ours, bare, Wanted::Nothing);
}

fn on_threads<F: Future<Output = ()>>(work: impl Fn() -> F + Sync) -> Took {
    let work = &work;
    timed(|| {
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let runtime = Builder::new_current_thread().build().expect("a runtime");
                    runtime.block_on(work());
                });
            }
        });
    })
}

/// A layer that has the answer already.
fn catalog<R: Answer>(answer: &R, runtime: &Runtime) -> impl Catalog<R> {
    let loaded = answer.clone();
    let mut catalog = ReadThroughLayer::builder(MemoryStore::new(10_000), key)
        .ttl(Duration::from_secs(3600))
        .build()
        .unwrap()
        .layer(service_fn(move |_: u64| {
            let loaded = loaded.clone();
            async move { Ok::<_, Infallible>(loaded) }
        }));
    runtime.block_on(catalog.call(SKU)).expect("a load");
    catalog
}

trait Catalog<R>: Service<u64, Response = R, Error = Error<Infallible>> + Clone + Send + Sync {}

impl<R, S: Service<u64, Response = R, Error = Error<Infallible>> + Clone + Send + Sync> Catalog<R>
    for S
{
}

fn caches<R: Answer>(answer: &R, runtime: &Runtime) -> (Cache<u64, R>, Cache<Key, R>) {
    let by_number = Cache::new(10_000);
    let by_key = Cache::new(10_000);
    runtime.block_on(by_number.insert(SKU, answer.clone()));
    runtime.block_on(by_key.insert(key(&SKU), answer.clone()));
    (by_number, by_key)
}

fn key(sku: &u64) -> Key {
    Key::of("item").with(*sku)
}

const SKU: u64 = 42;
const THREADS: usize = 2;
