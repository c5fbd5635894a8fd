#![allow(unused)]

use bellwether::{ByKey, ReadThroughLayer, read_through};

type Layer = ReadThroughLayer<ByKey>;

#[read_through(layer = layer, key = "item/{skew}", skip(layer))]
async fn unknown(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer))]
async fn forgotten(layer: &Layer, sku: u64, locale: &str, tenant: u64) -> Result<u64, ()> {
    Ok(sku + tenant + locale.len() as u64)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer, locale))]
async fn skips_what_is_not_there(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer, sku))]
async fn both(layer: &Layer, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(layer = layer, key = "item/{sku}", skip(layer))]
async fn has_no_name(layer: &Layer, (sku, _): (u64, u64)) -> Result<u64, ()> {
    Ok(sku)
}

struct Catalog {
    layer: Layer,
}

impl Catalog {
    #[read_through(layer = self.layer, key = "item/{sku}")]
    async fn forgets_self(&self, sku: u64) -> Result<u64, ()> {
        Ok(sku)
    }

    #[read_through(layer = self.layer, key = "item/{sku}", skip(self))]
    async fn changes_self(&mut self, sku: u64) -> Result<u64, ()> {
        Ok(sku)
    }
}

fn main() {}
