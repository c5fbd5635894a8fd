#![allow(unused)]

use bellwether::{ByKey, ReadThroughLayer, read_through};

type Layer = ReadThroughLayer<ByKey>;

struct Shelf;

#[derive(Clone)]
struct Unkept;

#[read_through(layer = layer, key = "item/{sku}", skip(layer), entry_fn = unkept_entry)]
async fn unkept(layer: &Layer, sku: u64) -> Result<Unkept, std::fmt::Error> {
    Ok(Unkept)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), entry_fn = same_name)]
async fn same_name(layer: &Layer, sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), entry_fn = twice, key_fn = twice)]
async fn two_of_one_name(layer: &Layer, sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), entry_fn = "item_entry")]
async fn quoted(layer: &Layer, sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), handle_fn = item_handle)]
async fn unknown(layer: &Layer, sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

#[read_through(layer = number, key = "item/{sku}", skip(number))]
async fn no_layer(number: u64, sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer))]
async fn of_other_keys(
    layer: &ReadThroughLayer<fn(&u64) -> bellwether::Key>,
    sku: u64,
) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

fn main() {}
