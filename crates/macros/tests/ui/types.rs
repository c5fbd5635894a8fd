#![allow(unused)]

use bellwether::{Cache, read_through};

struct Sku(u64);

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Item;

#[derive(Clone, serde::Serialize)]
struct Unkept;

#[read_through(cache = items, skip(items))]
async fn another_key(items: &Cache<u64, Item>, sku: &str) -> Result<Item, std::fmt::Error> {
    Ok(Item)
}

#[read_through(cache = items, skip(items))]
async fn no_part_of_a_key(items: &Cache<Sku, Item>, sku: Sku) -> Result<Item, std::fmt::Error> {
    Ok(Item)
}

#[read_through(cache = items, skip(items))]
async fn more_than_the_key(
    items: &Cache<u64, Item>,
    warehouse: &str,
    sku: u64,
) -> Result<Item, std::fmt::Error> {
    Ok(Item)
}

#[read_through(cache = items, key = sku.0, skip(items))]
async fn cannot_be_copied(items: &Cache<u64, Item>, sku: &Sku) -> Result<Item, std::fmt::Error> {
    Ok(Item)
}

#[read_through(cache = items, skip(items))]
async fn another_value(items: &Cache<u64, Item>, sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

#[read_through(cache = items, skip(items))]
async fn cannot_be_kept(items: &Cache<u64, Unkept>, sku: u64) -> Result<Unkept, std::fmt::Error> {
    Ok(Unkept)
}

#[read_through(cache = items, skip(items))]
async fn fails_with_no_error(items: &Cache<u64, Item>, sku: u64) -> Result<Item, ()> {
    Ok(Item)
}

#[read_through(cache = number, skip(number))]
async fn no_cache(number: u64, sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

fn main() {}
