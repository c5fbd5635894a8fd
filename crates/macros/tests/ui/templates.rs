#![allow(unused)]

use bellwether_lock::{LocalLock, Locks, locked};

type Stock = Locks<LocalLock>;

#[locked(locks = stock, key = "item/{sku")]
async fn not_closed(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = "item/{}")]
async fn empty(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = "item/{sku}/{sku}")]
async fn twice(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = "item-{sku}")]
async fn runs_together(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = "item//{sku}")]
async fn empty_segment(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = "item/{sku + 1}")]
async fn expression(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = item)]
async fn no_template(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

fn main() {}
