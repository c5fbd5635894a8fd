#![allow(unused)]

use bellwether::Key;
use bellwether_lock::{LocalLock, Locks};
use bellwether_lock::locked;

type Stock = Locks<LocalLock>;

#[locked(locks = stock, key = sku)]
async fn no_key_but_a_part(stock: &Stock, sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

#[locked(locks = stock, key = Key::of("item").with(sku), lease = "30s")]
async fn unknown_option(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, locks = stock, key = Key::of("item").with(sku))]
async fn twice(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock)]
async fn no_key(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(key = Key::of("item").with(sku))]
async fn no_locks(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = Key::of("item").with(sku))]
fn not_async(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = Key::of("item").with(sku))]
async fn no_result(stock: &Stock, sku: u64) -> u64 {
    sku
}

#[locked(locks = stock, key = Key::of("item").with(sku))]
async fn has_no_name(stock: &Stock, (sku, _): (u64, u64)) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = Key::of("item").with(price))]
async fn no_key_part(stock: &Stock, price: f64) -> Result<f64, std::fmt::Error> {
    Ok(price)
}

#[locked(locks = sku, key = Key::of("item").with(sku))]
async fn no_such_locks(sku: u64) -> Result<u64, std::fmt::Error> {
    Ok(sku)
}

fn main() {}
