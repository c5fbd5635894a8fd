#![allow(unused)]

use std::sync::Arc;

use bellwether::store::Store;
use bellwether::{Cache, Key, MemoryStore, ReadThroughLayer, StoreError};
use bellwether::codec::InProcess;

fn a_result(store: Result<MemoryStore, StoreError>) {
    Cache::<u64, u64>::builder("item", store);
}

fn values_of_the_process_in_a_store_that_may_be_shared(store: Arc<dyn Store>) {
    Cache::<u64, u64, InProcess>::in_process("item", store);
}

fn a_layer_of_the_process_over_one(store: Arc<dyn Store>) {
    ReadThroughLayer::in_process(store, |sku: &u64| Key::of("item").with(*sku));
}

fn main() {}
