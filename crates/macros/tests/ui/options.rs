#![allow(unused)]

use bellwether::{Cache, read_through};

type Items = Cache<u64, u64>;

#[read_through(cache = items, skip(items), ttl = "60s")]
async fn unknown(items: &Items, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(cache = items, cache = items, skip(items))]
async fn twice(items: &Items, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(skip(items))]
async fn no_cache(items: &Items, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

fn main() {}
