#![allow(unused)]

use std::collections::HashMap;

use bellwether::{ByKey, ReadThroughLayer, read_through};

type Layer = ReadThroughLayer<ByKey>;
type Map = HashMap<u64, u64>;

#[read_through(layer = layer, key = "item/{sku}", each(sku in skews), skip(layer))]
async fn no_argument(layer: &Layer, skus: Vec<u64>) -> Result<Map, ()> {
    Ok(HashMap::new())
}

#[read_through(layer = layer, key = "item/{skus}", each(sku in skus), skip(layer))]
async fn all_in_one_key(layer: &Layer, skus: Vec<u64>) -> Result<Map, ()> {
    Ok(HashMap::new())
}

#[read_through(layer = layer, key = "item", each(sku in skus), skip(layer))]
async fn one_key_for_all(layer: &Layer, skus: Vec<u64>) -> Result<Map, ()> {
    Ok(HashMap::new())
}

#[read_through(layer = layer, key = "item/{layer}", each(layer in skus), skip(layer))]
async fn a_name_that_is_taken(layer: &Layer, skus: Vec<u64>) -> Result<Map, ()> {
    Ok(HashMap::new())
}

#[read_through(layer = layer, key = "item/{sku}", each(sku in skus), skip(layer))]
async fn no_vec(layer: &Layer, skus: &[u64]) -> Result<Map, ()> {
    Ok(HashMap::new())
}

#[read_through(layer = layer, key = "item/{sku}", each(sku in skus), skip(layer, skus))]
async fn skips_the_items(layer: &Layer, skus: Vec<u64>) -> Result<Map, ()> {
    Ok(HashMap::new())
}

#[read_through(layer = layer, key = "item/{sku}", each(skus), skip(layer))]
async fn no_item(layer: &Layer, skus: Vec<u64>) -> Result<Map, ()> {
    Ok(HashMap::new())
}

#[read_through(layer = layer, key = "item/{sku}", each(sku in skus, tag), skip(layer))]
async fn two_lists(layer: &Layer, skus: Vec<u64>) -> Result<Map, ()> {
    Ok(HashMap::new())
}

#[read_through(layer = layer, key = "item/{sku}", each = skus, skip(layer))]
async fn not_in_brackets(layer: &Layer, skus: Vec<u64>) -> Result<Map, ()> {
    Ok(HashMap::new())
}

#[read_through(layer = layer, key = "item/{sku}", each(sku in skus), skip(layer))]
async fn no_list(layer: &Layer, skus: u64) -> Result<Map, ()> {
    Ok(HashMap::new())
}

#[read_through(layer = layer, key = "item/{sku}", each(sku in skus), skip(layer))]
async fn borrows_the_items(layer: &Layer, skus: Vec<&str>) -> Result<Map, ()> {
    Ok(HashMap::new())
}

fn main() {}
