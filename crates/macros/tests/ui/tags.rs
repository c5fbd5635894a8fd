#![allow(unused)]

use std::collections::HashMap;

use bellwether::{ByKey, ReadThroughLayer, read_through};

type Layer = ReadThroughLayer<ByKey>;

#[derive(Clone)]
struct Shelf {
    name: String,
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), tags = "shelf/{sku}")]
async fn no_list(layer: &Layer, sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), tags = [shelf])]
async fn no_template(layer: &Layer, sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), tags = ["{sku}"])]
async fn no_kind(layer: &Layer, sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), tags = ["sku-{sku}"])]
async fn runs_together(layer: &Layer, sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), tags = ["shelf/{shelf}"])]
async fn no_argument(layer: &Layer, sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

#[read_through(
    layer = layer,
    key = "item/{sku}",
    each(sku in skus),
    skip(layer),
    tags = ["shelf/{skus}"],
)]
async fn of_all_items(layer: &Layer, skus: Vec<u64>) -> Result<HashMap<u64, u64>, std::fmt::Error> {
    Ok(HashMap::new())
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), tags = ["sku/{sku}" as "sku_tag"])]
async fn quoted(layer: &Layer, sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

#[read_through(
    layer = layer,
    key = "item/{shelf.name}",
    skip(layer),
    tags = ["shelf/{shelf}" as shelf_tag],
)]
async fn no_part_of_a_tag(layer: &Layer, shelf: Shelf) -> Result<u64, std::fmt::Error> {
    Ok(0)
}

fn main() {}
