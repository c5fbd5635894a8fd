#![allow(unused)]

use bellwether::{ByKey, ReadThroughLayer, read_through};

type Layer = ReadThroughLayer<ByKey>;

struct Sku(u64);

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Item;

#[derive(Clone, serde::Serialize)]
struct Unkept;

#[read_through(layer = layer, key = "item/{sku}", skip(layer))]
async fn no_part_of_a_key(layer: &Layer, sku: Sku) -> Result<Item, std::fmt::Error> {
    Ok(Item)
}

#[read_through(layer = layer, key = "item/{sku.0}", skip(layer))]
async fn cannot_be_copied(layer: &Layer, sku: &Sku) -> Result<Item, std::fmt::Error> {
    Ok(Item)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer))]
async fn cannot_be_kept(layer: &Layer, sku: u64) -> Result<Unkept, std::fmt::Error> {
    Ok(Unkept)
}

struct Pool;

#[read_through(layer = layer, key = "item/{sku}", skip(layer, pool))]
async fn cannot_be_cloned(layer: &Layer, sku: u64, pool: Pool) -> Result<Item, std::fmt::Error> {
    Ok(Item)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer))]
async fn fails_with_no_error(layer: &Layer, sku: u64) -> Result<Item, ()> {
    Ok(Item)
}

fn main() {}
