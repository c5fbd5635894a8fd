#![allow(unused)]

use bellwether::{ByKey, ReadThroughLayer, read_through};

type Layer = ReadThroughLayer<ByKey>;

#[read_through(
    layer = layer,
    key = "stock/{warehouse}/{sku}",
    skip(layer),
    ttl = "60s",
    tags = ["shelf/{warehouse}" as shelf_tag],
    entry_fn = stock_entry,
    key_fn = stock_key,
)]
async fn stock(layer: &Layer, warehouse: &str, sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

fn wrong_arguments(layer: &Layer) {
    stock_entry(layer, 42, "berlin");
    stock_entry(layer, "berlin");
    stock_key(42, "berlin");
    shelf_tag("berlin", 42);
}

async fn wrong_value(layer: &Layer) {
    stock_entry(layer, "berlin", 42).put("seven").await;
}

fn main() {}
