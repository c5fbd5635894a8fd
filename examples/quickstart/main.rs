//! A thousand callers, one load; no server needed: `cargo run --example quickstart`.

use std::{error::Error, time::Duration};

use bellwether::{Cache, MemoryStore};
use futures_util::future::try_join_all;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new(10_000);
    let items: Cache<u64, String> =
        Cache::builder("item", store).ttl(Duration::from_secs(60)).build()?;

    let load = async || {
        println!("the database is asked for item 42"); // once
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok::<_, std::io::Error>("item 42".to_owned())
    };
    let answers = try_join_all((0..1000).map(|_| items.get_or_load(42, load))).await?;
    println!("{} callers were given {:?}", answers.len(), answers[0]);
    Ok(())
}
