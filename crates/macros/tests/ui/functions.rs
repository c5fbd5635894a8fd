#![allow(unused)]

use bellwether::{Cache, read_through};

type Items = Cache<u64, u64>;

#[read_through(cache = items, skip(items))]
fn not_async(items: &Items, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(cache = items, skip(items))]
async fn cannot_fail(items: &Items, sku: u64) -> u64 {
    sku
}

#[read_through(cache = items, skip(items))]
async fn gives_nothing(items: &Items, sku: u64) {
    drop(sku)
}

fn main() {}
