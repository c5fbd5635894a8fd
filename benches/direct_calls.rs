//! A call of a `Cache` against a request to the layer that it is built like: a hit, and a load.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Duration;

use bellwether::{Cache, Key, MemoryStore, ReadThroughLayer};
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, Service, service_fn};

use crate::figures::Wanted;
use crate::paired::{Effort, Race};
use crate::product::Product;

pub(crate) fn run(effort: Effort) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    race("a hit", Duration::from_secs(3600), &runtime, effort);
    // Nothing is stored, so each call looks up, takes the lease, loads and commits.
    race("a load", Duration::ZERO, &runtime, effort);
}

fn race(case: &str, ttl: Duration, runtime: &Runtime, effort: Effort) {
    let load = async |sku: u64| Ok::<_, Infallible>(Product::new(sku));
    let layer =
        ReadThroughLayer::builder(MemoryStore::new(10_000), |sku: &u64| Key::of("item").with(*sku));
    let mut catalog = layer.ttl(ttl).build().expect("options").layer(service_fn(load));
    let cache: Cache<u64, Product> =
        Cache::builder("item", MemoryStore::new(10_000)).ttl(ttl).build().expect("options");
    runtime.block_on(catalog.call(SKU)).expect("a load");
    runtime.block_on(cache.get_or_load(SKU, move || load(SKU))).expect("a load");
    let mut race = Race::new("direct", case);
    let request =
        race.enter_async("a request to the layer", runtime, || catalog.call(black_box(SKU)));
    let call = race.enter_async("a call of the cache", runtime, || {
        let sku = black_box(SKU);
        cache.get_or_load(sku, move || load(sku))
    });
    let outcome = race.run(effort);
    outcome.print(&[request, call]);
    outcome.print_times(call, request, Wanted::AtMost(1.03));
}

const SKU: u64 = 42;
