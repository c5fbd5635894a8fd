#![allow(unused)]

use std::collections::HashMap;
use std::fmt;

use bellwether::{ByKey, ReadThroughLayer, read_through};

type Layer = ReadThroughLayer<ByKey>;

#[derive(Clone, PartialEq, Eq, Hash)]
struct Sku(u64);

struct NoCopy;

#[derive(Clone, serde::Serialize)]
struct Unkept;

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

#[read_through(layer = layer, key = "item/{sku}", each(sku in skus), skip(layer))]
async fn no_part_of_a_key(
    layer: &Layer,
    skus: Vec<Sku>,
) -> Result<HashMap<Sku, u64>, fmt::Error> {
    Ok(HashMap::new())
}

#[read_through(layer = layer, key = "item/{sku}", each(sku in skus), skip(layer))]
async fn cannot_be_kept(
    layer: &Layer,
    skus: Vec<u64>,
) -> Result<HashMap<u64, Unkept>, fmt::Error> {
    Ok(HashMap::new())
}

#[read_through(layer = layer, key = "item/{sku}", each(sku in skus), skip(layer))]
async fn map_of_other_keys(
    layer: &Layer,
    skus: Vec<u64>,
) -> Result<HashMap<String, u64>, fmt::Error> {
    Ok(HashMap::new())
}

fn main() {}
