#![allow(unused)]

use std::io::Error;

use bellwether::{Cache, Key, MemoryStore, ReadThroughLayer};
use tower::service_fn;

fn no_result(items: &Cache<u64, u64>) {
    drop(items.get_or_load(1, async || 7));
}

fn not_async(items: &Cache<u64, u64>) {
    drop(items.get_or_load(1, || Ok::<u64, Error>(7)));
}

fn with_a_parameter(items: &Cache<u64, u64>) {
    drop(items.get_or_load(1, async |sku: u64| Ok::<_, Error>(sku)));
}

fn of_another_type(items: &Cache<u64, u64>) {
    drop(items.get_or_load(1, async || Ok::<_, Error>("seven")));
}

fn without_a_request() {
    let layer = ReadThroughLayer::builder(MemoryStore::new(10), |sku: &u64| Key::of("item").with(*sku)).build().unwrap();
    layer.service(service_fn(async |name: String| Ok::<_, Error>(7)));
}

fn a_batch_without_an_order(items: &Cache<u64, u64>) {
    drop(items.get_or_load_many([1, 2], async |skus: Vec<u64>| Ok::<_, Error>(skus)));
}

fn a_map_for_values_that_are_no_options(items: &Cache<u64, u64>) {
    drop(items.get_or_load_many([1, 2], async |_| Ok::<_, Error>(std::collections::HashMap::<u64, u64>::new())));
}

fn main() {}
