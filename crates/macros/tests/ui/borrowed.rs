#![allow(unused)]

use bellwether::{Cache, read_through};

type Items = Cache<u64, u64>;

#[read_through(cache = items, skip(items))]
async fn within(items: &Items, sku: Option<&str>) -> Result<u64, ()> {
    Ok(sku.map_or(0, str::len) as u64)
}

#[read_through(cache = items, skip(items))]
async fn to_be_changed(items: &Items, sku: &mut u64) -> Result<u64, ()> {
    Ok(*sku)
}

#[read_through(cache = items, skip(items))]
async fn given_back<'a>(items: &Items, sku: &'a str) -> Result<&'a str, ()> {
    Ok(sku)
}

fn main() {}
