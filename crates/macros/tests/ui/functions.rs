#![allow(unused)]

use bellwether::{ByKey, ReadThroughLayer, read_through};

type Layer = ReadThroughLayer<ByKey>;

#[read_through(layer = layer, key = "item/{sku}", skip(layer))]
fn not_async(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer))]
async fn cannot_fail(layer: &Layer, sku: u64) -> u64 {
    sku
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer))]
async fn gives_nothing(layer: &Layer, sku: u64) {
    drop(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), not_found_ttl = "5s")]
async fn always_finds(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

fn main() {}
