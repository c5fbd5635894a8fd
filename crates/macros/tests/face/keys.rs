#![allow(unused)]

use std::io::Error;

use bellwether::{Cache, CacheKey, Key, MemoryStore, ReadThroughLayer};

struct Sku(u64);

#[derive(CacheKey)]
struct Isbn(u64);

#[derive(CacheKey)]
struct Weight(f64);

#[derive(CacheKey)]
union Either {
    left: u32,
}

fn a_text_for_a_key() {
    ReadThroughLayer::builder(MemoryStore::new(10), |sku: &u64| format!("item:{sku}"));
}

fn a_number_for_a_key() {
    ReadThroughLayer::builder(MemoryStore::new(10), |sku: &u64| *sku);
}

fn a_type_of_the_program_as_a_part() {
    Key::of("item").with(Sku(1));
}

fn a_key_of_another_type(items: &Cache<Isbn, u64>) {
    drop(items.get_or_load(Isbn(1), async || Ok::<_, Error>(1)));
    drop(items.invalidate("1"));
    drop(items.invalidate(1));
}

fn main() {}
