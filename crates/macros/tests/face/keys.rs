#![allow(unused)]

use std::io::Error;

use bellwether::{Cache, MemoryStore, ReadThroughLayer};

struct Sku(u64);

fn a_text_for_a_key() {
    ReadThroughLayer::new(MemoryStore::new(10), |sku: &u64| format!("item:{sku}"));
}

fn a_number_for_a_key() {
    ReadThroughLayer::new(MemoryStore::new(10), |sku: &u64| *sku);
}

fn a_type_of_the_program_as_a_part(items: &Cache<u64>) {
    drop(items.get_or_load(Sku(1), async || Ok::<_, Error>(1)));
}

fn main() {}
