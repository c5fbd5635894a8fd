#![allow(unused)]

use bellwether::{Cache, Tag, read_through};

type Items = Cache<u64, u64>;

#[read_through(cache = items, key = skew, skip(items))]
async fn unknown(items: &Items, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(cache = items, key = sku, skip(items))]
async fn forgotten(items: &Items, sku: u64, locale: &str, tenant: u64) -> Result<u64, ()> {
    Ok(sku + tenant + locale.len() as u64)
}

#[read_through(cache = items, skip(items, locale))]
async fn skips_what_is_not_there(items: &Items, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(cache = items, key = sku, skip(items, sku))]
async fn both(items: &Items, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(cache = items, skip(items, shelf), tags = [Tag::of("shelf").with(shelf)])]
async fn tag_of_what_is_skipped(items: &Items, sku: u64, shelf: u64) -> Result<u64, ()> {
    Ok(sku + shelf)
}

#[read_through(cache = items, skip(items))]
async fn has_no_name(items: &Items, (sku, _): (u64, u64)) -> Result<u64, ()> {
    Ok(sku)
}

struct Catalog {
    items: Items,
}

impl Catalog {
    #[read_through(cache = self.items, key = sku)]
    async fn forgets_self(&self, sku: u64) -> Result<u64, ()> {
        Ok(sku)
    }

    #[read_through(cache = self.items, skip(self))]
    async fn changes_self(&mut self, sku: u64) -> Result<u64, ()> {
        Ok(sku)
    }
}

fn main() {}
