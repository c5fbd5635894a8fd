#![allow(unused)]

use bellwether::{ByKey, ReadThroughLayer, read_through};

type Layer = ReadThroughLayer<ByKey>;

#[read_through(layer = layer, key = "item/{sku}", skip(layer), ttl = "60")]
async fn no_unit(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), ttl = "1.5h")]
async fn no_whole_number(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), ttl = "0s")]
async fn no_time(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), ttl = "400d")]
async fn for_ever(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), time_to_live = "60s")]
async fn unknown(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), ttl = "60s", ttl = "61s")]
async fn twice(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, skip(layer))]
async fn no_key(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(key = "item/{sku}", skip(layer))]
async fn no_layer(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), tags = ["shelf/{layer}"])]
async fn tag_of_another_argument(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer), ttl = 60)]
async fn no_text(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = item, skip(layer))]
async fn no_template(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

fn main() {}
