#![allow(unused)]

use std::collections::HashMap;
use std::fmt;

use bellwether::{ByKey, ReadThroughLayer, read_through};

type Layer = ReadThroughLayer<ByKey>;

#[read_through(layer = layer, key = "item/{sku}", each(sku in skus), skip(layer))]
async fn does_not_say_which(layer: &Layer, skus: Vec<u64>) -> Result<Vec<u64>, fmt::Error> {
    Ok(skus)
}

#[read_through(
    layer = layer,
    key = "item/{sku}",
    each(sku in skus),
    skip(layer),
    not_found_ttl = "5s",
)]
async fn always_finds(
    layer: &Layer,
    skus: Vec<u64>,
) -> Result<Vec<Result<u64, fmt::Error>>, fmt::Error> {
    Ok(skus.into_iter().map(Ok).collect())
}

fn main() {}
