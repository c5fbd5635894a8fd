//! What a caller pays for a store that is down.
//!
//! Every call misses: by turns over a `RedisStore` whose server is away and whose breaker is open,
//! and over a `MemoryStore` that stores nothing. The loader answers at once, so the difference is
//! the time of the store: to skip it, and to keep the answer for the process. Once in a second one
//! call finds out whether the server is back; it is among the calls.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bellwether::store::Store;
use bellwether::{Error, Key, MemoryStore, ReadThroughLayer};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_testkit::servers::RedisServer;
use tokio::runtime::Runtime;
use tower::{Layer, Service, service_fn};

use crate::figures::{Spread, Wanted, line};
use crate::paired::Effort;

pub(crate) fn run(effort: Effort) {
    let runtime = Runtime::new().expect("a runtime");
    type Away = fn(&mut RedisServer);
    let ways: [(&str, Away); 2] =
        [("killed", RedisServer::kill), ("stopped", |server| server.stop())];
    for (case, away) in ways {
        let mut server = RedisServer::start();
        let options = RedisOptions::new(&server.url(), "test").expect("an address");
        let store = runtime.block_on(options.connect()).expect("a store");
        away(&mut server);
        race(case, store, &runtime, effort);
    }
}

fn race(case: &str, store: RedisStore, runtime: &Runtime, effort: Effort) {
    let mut down = catalog(store.clone());
    let mut none = catalog(MemoryStore::new(1));
    // The breaker opens.
    runtime.block_on(calls(&mut down, 0..10));
    let mut of_down = Vec::new();
    let mut of_none = Vec::new();
    let turns: u64 = if effort.is_smoke() { 1 } else { 2_000 };
    for turn in 1..=turns {
        let skus = turn * 100..(turn + 1) * 100;
        of_down.extend(runtime.block_on(calls(&mut down, skus.clone())));
        of_none.extend(runtime.block_on(calls(&mut none, skus)));
    }
    assert!(store.is_down(), "the store is not down");
    let print = |name: &str, millis: f64, wanted: Wanted| {
        let verdict = wanted.verdict(Spread::of([millis].into_iter()));
        let figure = format!("{millis:>10.3} ms{verdict}");
        line("outage", &format!("misses, server {case}"), name, &figure, effort.is_smoke());
    };
    for share in [0.5, 0.99] {
        let [down, none] = [&mut of_down, &mut of_none].map(|took| quantile(took, share));
        print(&format!("p{}, store down", share * 100.0), down, Wanted::Nothing);
        print(&format!("p{}, no store", share * 100.0), none, Wanted::Nothing);
        print(&format!("p{}, time of the store", share * 100.0), down - none, Wanted::AtMost(1.0));
    }
    print("max, store down", quantile(&mut of_down, 1.0), Wanted::Nothing);
}

fn key(sku: &u64) -> Key {
    Key::of("item").with(*sku)
}

trait Catalog: Service<u64, Response = u64, Error = Error<Infallible>, Future: Send> {}

impl<S: Service<u64, Response = u64, Error = Error<Infallible>, Future: Send>> Catalog for S {}

fn catalog(store: impl Store) -> impl Catalog {
    ReadThroughLayer::builder(store, key)
        .build()
        .unwrap()
        .layer(service_fn(async |sku: u64| Ok::<_, Infallible>(sku)))
}

/// How long each call took.
async fn calls(catalog: &mut impl Catalog, skus: std::ops::Range<u64>) -> Vec<Duration> {
    let mut took = Vec::new();
    for sku in skus {
        let began = Instant::now();
        black_box(catalog.call(black_box(sku)).await.expect("an answer"));
        took.push(began.elapsed());
    }
    took
}

/// In milliseconds.
fn quantile(took: &mut [Duration], share: f64) -> f64 {
    took.sort_unstable();
    let at = ((took.len() - 1) as f64 * share).round() as usize;
    took[at].as_secs_f64() * 1e3
}
