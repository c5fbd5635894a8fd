#![allow(unused)]

use std::io::Error;

use bellwether::{Cache, Key, MemoryStore, ReadThroughLayer};
use bellwether::codec::InProcess;
use tower::service_fn;

struct Item;

#[derive(Clone, serde::Serialize)]
struct Half;

fn nothing_is_derived() {
    Cache::<u64, Item>::builder("item", MemoryStore::new(10)).coalesce_only().build();
}

fn something_is_not_derived(items: &Cache<u64, Option<Half>>) {
    drop(items.get_or_load(1, async || Ok::<_, Error>(None)));
}

fn behind_a_layer() {
    let layer = ReadThroughLayer::builder(MemoryStore::new(10), |sku: &u64| Key::of("item").with(*sku)).build().unwrap();
    layer.service(service_fn(async |_: u64| Ok::<_, Error>(Item)));
}

fn in_the_process() {
    Cache::<u64, Item, InProcess>::in_process("item", MemoryStore::new(10)).coalesce_only().build();
}

fn main() {}
