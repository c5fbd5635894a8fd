//! What a call returns: a future with a status.

use std::sync::LazyLock;
use std::time::Duration;

use bellwether::{AnswerFuture, Cache, CacheStatus, MemoryStore, read_through};

use super::catalog::{Catalog, Item, Missing, item};

#[tokio::test]
async fn the_status_says_how_an_answer_came_about() {
    let catalog = Catalog::new();
    let (answer, status) = item(&catalog, "berlin", 42).with_status().await;
    assert_eq!(answer.unwrap(), Item::named("berlin 42"));
    assert_eq!(status, CacheStatus::Led { stored: true });
    let (answer, status) = item(&catalog, "berlin", 42).with_status().await;
    assert_eq!(answer.unwrap(), Item::named("berlin 42"));
    assert!(matches!(status, CacheStatus::Hit { .. }), "{status}");
}

#[tokio::test]
async fn the_future_borrows_no_argument() {
    let catalog = Catalog::new();
    let call: AnswerFuture<Item, Missing> = {
        let warehouse = String::from("berlin");
        item(&catalog.clone(), &warehouse, 42)
    };
    assert_eq!(tokio::spawn(call).await.unwrap().unwrap(), Item::named("berlin 42"));
}

static SUMS: LazyLock<Cache<u64, u64>> = LazyLock::new(|| {
    let builder = Cache::builder("sum", MemoryStore::new(100));
    builder.ttl(Duration::from_secs(3_600)).build().unwrap()
});

#[read_through(cache = SUMS)]
async fn sum(to: u64) -> Result<u64, std::io::Error> {
    match to {
        0 => Ok(0),
        _ => Ok(to + sum(to - 1).await.map_err(std::io::Error::other)?),
    }
}

#[tokio::test]
async fn a_function_that_calls_itself_reads_each_of_its_calls_through_the_cache() {
    assert_eq!(sum(10).await.unwrap(), 55);
    let (answer, status) = sum(7).with_status().await;
    assert_eq!(answer.unwrap(), 28);
    assert!(matches!(status, CacheStatus::Hit { .. }), "{status}");
}
