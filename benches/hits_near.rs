//! A hit on a copy in the near tier of a `RedisStore`, through the whole layer, against a hit in the
//! library that keeps the copies.
//!
//! *Bare* is what one writes without this crate and without caring whether it is still true: a
//! `quick_cache::sync::Cache<u64, V>`. The next baseline is asked by the same [`Key`] as we are,
//! made for each request as our key function makes it; and the last one by that key's digest, which
//! a cache needs that names copies as the server names entries. The parts are ours, each by itself.

use std::convert::Infallible;
use std::hash::RandomState;
use std::hint::black_box;
use std::thread;
use std::time::Duration;

use bellwether::store::Store;
use bellwether::{Error, Key, ReadThroughLayer};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_testkit::servers::RedisServer;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use serde::{Serialize, de::DeserializeOwned};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use tower::{Layer, Service, service_fn};

use crate::figures::Wanted;
use crate::paired::{Effort, Race, Took, timed};
use crate::product::{Page, Product};

pub(crate) fn run(effort: Effort) {
    let server = RedisServer::start();
    let runtime = Runtime::new().expect("a runtime");
    let stage = Stage { server: &server, runtime: &runtime };
    stage.hit("two strings", &Product::new(SKU), effort);
    stage.hit("one Arc<str>", &Page::from("a page".repeat(100)), effort);
    stage.hit_by_two_threads("one Arc<str>, 2 threads", effort.in_long_turns());
}

/// The bounds of an answer that is stored.
trait Answer: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> Answer for T {}

struct Stage<'a> {
    server: &'a RedisServer,
    runtime: &'a Runtime,
}

impl Stage<'_> {
    fn hit<R: Answer>(&self, case: &str, answer: &R, effort: Effort) {
        let alone = Builder::new_current_thread().build().expect("a runtime");
        let (store, mut catalog) = self.catalog(case, answer);
        let by_number = of(SKU, answer);
        let by_key = of(key(&SKU), answer);
        let by_digest = cache();
        by_digest.insert(key(&SKU).digest(), answer.clone());
        let made = key(&SKU);
        let mut race = Race::new("near", case);
        let ours = race.enter_async("bellwether", &alone, || catalog.call(black_box(SKU)));
        let bare = race.enter_plain("quick_cache by u64 (bare)", || by_number.get(&black_box(SKU)));
        let keyed = race.enter_plain("quick_cache by Key", || by_key.get(&key(&black_box(SKU))));
        let digested = race
            .enter_plain("quick_cache by digest", || by_digest.get(&key(&black_box(SKU)).digest()));
        let parts = [
            race.enter_plain("a key", || key(&black_box(SKU))),
            race.enter_plain("the store's peek", || store.peek(black_box(&made))),
            race.enter_plain("a clone of the answer", || black_box(answer).clone()),
        ];
        let clock = race.enter_plain("the clock", Instant::now);
        let outcome = race.run(effort);
        outcome.print(&[ours, bare, keyed, digested]);
        outcome.print_times(ours, bare, Wanted::Nothing);
        outcome.print_times(ours, keyed, Wanted::Nothing);
        outcome.print_times(ours, digested, Wanted::AtMost(1.5));
        outcome.print(&parts);
        outcome.print_remainder("the remainder: the layer", ours, &parts);
        outcome.print(&[clock]);
    }

    /// Two threads that want the same key at the same time.
    fn hit_by_two_threads(&self, case: &str, effort: Effort) {
        let answer = Page::from("a page".repeat(100));
        let (_store, catalog) = self.catalog(case, &answer);
        let by_number = of(SKU, &answer);
        let mut race = Race::new("near", case);
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
        let bare = race.enter("quick_cache by u64 (bare)", THREADS, |times| {
            on_threads(|| async {
                for _ in 0..times {
                    black_box(by_number.get(&black_box(SKU)).expect("a hit"));
                }
            })
        });
        let outcome = race.run(effort);
        outcome.print(&[ours, bare]);
        outcome.print_times(ours, bare, Wanted::Nothing);
    }

    /// A layer over a store that has a copy, which lasts.
    fn catalog<R: Answer>(&self, case: &str, answer: &R) -> (RedisStore, impl Catalog<R>) {
        let hour = Duration::from_secs(3600);
        let namespace = case.replace(|letter| !char::is_alphanumeric(letter), "_");
        let options = RedisOptions::new(&self.server.url(), &namespace)
            .map(|options| options.near(16 * 1024 * 1024))
            .map(|options| options.near_ttl(hour))
            .expect("options that make sense");
        let store = self.runtime.block_on(options.connect()).expect("a store");
        let loaded = answer.clone();
        let mut catalog =
            ReadThroughLayer::builder(store.clone(), key).ttl(2 * hour).build().unwrap().layer(
                service_fn(move |_: u64| {
                    let loaded = loaded.clone();
                    async move { Ok::<_, Infallible>(loaded) }
                }),
            );
        for _ in 0..2 {
            self.runtime.block_on(catalog.call(SKU)).expect("an answer");
        }
        (store, catalog)
    }
}

trait Catalog<R>: Service<u64, Response = R, Error = Error<Infallible>> + Clone + Send + Sync {}

impl<R, S: Service<u64, Response = R, Error = Error<Infallible>> + Clone + Send + Sync> Catalog<R>
    for S
{
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

type Bare<K, R> = Cache<K, R, UnitWeighter, RandomState>;

fn cache<K: Eq + std::hash::Hash, R: Answer>() -> Bare<K, R> {
    Cache::with(10_000, 10_000, UnitWeighter, RandomState::new(), DefaultLifecycle::default())
}

fn of<K: Eq + std::hash::Hash, R: Answer>(key: K, answer: &R) -> Bare<K, R> {
    let cache = cache();
    cache.insert(key, answer.clone());
    cache
}

fn key(sku: &u64) -> Key {
    Key::of("item").with(*sku)
}

const SKU: u64 = 42;
const THREADS: usize = 2;
