#![allow(unused)]

use bellwether_lock::{LocalLock, Locks};
use bellwether_lock::locked;

type Stock = Locks<LocalLock>;

#[locked(locks = stock, key = "item/{skew}")]
async fn unknown_argument(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = "{sku}")]
async fn no_kind(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = "item/{sku}", lease = "30s")]
async fn unknown_option(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = "item/{sku}", wait = "soon")]
async fn no_duration(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, locks = stock, key = "item/{sku}")]
async fn twice(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock)]
async fn no_key(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(key = "item/{sku}")]
async fn no_locks(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = "item/{sku}")]
fn not_async(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = "item/{sku}")]
async fn no_result(stock: &Stock, sku: u64) -> u64 {
    sku
}

#[locked(locks = stock, key = "item/{sku}")]
async fn has_no_name(stock: &Stock, (sku, _): (u64, u64)) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = "item/{price}")]
async fn no_key_part(stock: &Stock, price: f64) -> Result<f64, ()> {
    Ok(price)
}

#[locked(locks = sku, key = "item/{sku}")]
async fn no_such_locks(sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

fn main() {}
