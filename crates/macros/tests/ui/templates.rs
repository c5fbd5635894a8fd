#![allow(unused)]

use bellwether::{ByKey, ReadThroughLayer, read_through};

type Layer = ReadThroughLayer<ByKey>;

#[read_through(layer = layer, key = "item/{sku", skip(layer))]
async fn not_closed(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{}", skip(layer))]
async fn empty(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}/{sku}", skip(layer))]
async fn twice(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "{sku}", skip(layer))]
async fn no_kind(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item-{sku}", skip(layer))]
async fn runs_together(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item//{sku}", skip(layer))]
async fn empty_segment(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku + 1}", skip(layer))]
async fn expression(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

fn main() {}
