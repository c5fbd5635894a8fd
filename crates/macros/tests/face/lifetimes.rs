#![allow(unused)]

use std::io::Error;

use bellwether::{Cache, Key, MemoryStore, ReadThroughLayer};
use tower::service_fn;

struct Pool;

async fn query(_: &Pool, sku: u64) -> Result<u64, Error> {
    Ok(sku)
}

fn no_lifetime() {
    let items: Cache<u64, u64> = Cache::builder("item", MemoryStore::new(10)).build();
}

fn a_loader_that_borrows(items: &Cache<u64, u64>, pool: &Pool) {
    drop(items.get_or_load(1, async move || query(pool, 1).await));
}

fn a_request_that_borrows(name: &str) {
    let layer = ReadThroughLayer::builder(MemoryStore::new(10), |name: &&str| Key::of("item").with(*name)).build().unwrap();
    let mut service = layer.service(service_fn(async |name: &str| Ok::<_, Error>(name.len())));
    drop(tower::Service::call(&mut service, name));
}

fn main() {}
