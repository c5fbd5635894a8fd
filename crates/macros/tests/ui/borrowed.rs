#![allow(unused)]

use bellwether::{ByKey, ReadThroughLayer, read_through};

type Layer = ReadThroughLayer<ByKey>;

#[read_through(layer = layer, key = "item/{sku}", skip(layer))]
async fn within(layer: &Layer, sku: Option<&str>) -> Result<u64, ()> {
    Ok(sku.map_or(0, str::len) as u64)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer))]
async fn to_be_changed(layer: &Layer, sku: &mut u64) -> Result<u64, ()> {
    Ok(*sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer))]
async fn given_back<'a>(layer: &Layer, sku: &'a str) -> Result<&'a str, ()> {
    Ok(sku)
}

fn main() {}
