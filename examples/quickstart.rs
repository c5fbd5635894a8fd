//! A thousand callers, one load; no server needed: `cargo run --example quickstart`.

use std::{error::Error, time::Duration};

use bellwether::{Key, MemoryStore, ReadThroughLayer};
use futures_util::future::try_join_all;
use tower::{Layer, ServiceExt, service_fn};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new(10_000);
    let layer = ReadThroughLayer::new(store, |sku: &u64| Key::of("item").with(*sku))
        .ttl(Duration::from_secs(60));
    let catalog = layer.layer(service_fn(async |sku: u64| {
        println!("the database is asked for item {sku}"); // once
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok::<_, std::io::Error>(format!("item {sku}"))
    }));

    let answers = try_join_all((0..1000).map(|_| catalog.clone().oneshot(42))).await?;
    println!("{} callers were given {:?}", answers.len(), answers[0]);
    Ok(())
}
