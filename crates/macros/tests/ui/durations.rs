#![allow(unused)]

use bellwether_lock::{LocalLock, Locks, locked};

type Stock = Locks<LocalLock>;

#[locked(locks = stock, key = "item/{sku}", wait = "60")]
async fn no_unit(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = "item/{sku}", wait = "1.5h")]
async fn no_whole_number(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = "item/{sku}", wait = "0s")]
async fn no_time(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = "item/{sku}", wait = "400d")]
async fn for_ever(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[locked(locks = stock, key = "item/{sku}", wait = 60)]
async fn no_text(stock: &Stock, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

fn main() {}
