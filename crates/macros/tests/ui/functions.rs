#![allow(unused)]

use bellwether::{Cache, read_through};

type Items = Cache<u64, u64>;

#[read_through(cache = items, skip(items))]
fn not_async(items: &Items, sku: u64) -> Result<u64, ()> {
    Ok(sku)
}

#[read_through(cache = items, skip(items))]
async fn cannot_fail(items: &Items, sku: u64) -> u64 {
    sku
}

#[read_through(cache = items, skip(items))]
async fn gives_nothing(items: &Items, sku: u64) {
    drop(sku)
}

/// As `#[async_trait]` writes it.
#[read_through(cache = items, skip(items))]
fn of_a_trait<'life0, 'async_trait>(
    items: &'life0 Items,
    sku: u64,
) -> std::pin::Pin<Box<dyn Future<Output = Result<u64, ()>> + Send + 'async_trait>>
where
    'life0: 'async_trait,
{
    Box::pin(async move { Ok(sku) })
}

fn main() {}
