//! Expiring a tag makes its entries stale, at once or one after the other.

use std::time::Duration;

use bellwether::{CacheStatus, MemoryStore, StaleReason, Tag};
use bellwether_testkit::caches::{Cached, MINUTE, SECOND, answer, ask, idle};
use bellwether_testkit::loaders::Loader;
use tokio::time::sleep;
use tower::Layer;

use super::{shelf, tagged, tagging};

fn stale_while_revalidate(loader: &Loader) -> Cached {
    let layer = tagging(MemoryStore::new(1_000)).stale_while_revalidate(MINUTE).build().unwrap();
    layer.layer(loader.clone())
}

async fn status(cached: &Cached, item: u64) -> CacheStatus {
    ask(cached, item).await.expect("no panic").1
}

#[tokio::test(start_paused = true)]
async fn callers_get_the_stale_answer_while_one_load_replaces_it() {
    let loader = Loader::new();
    let cached = stale_while_revalidate(&loader);
    answer(&cached, 1).await;
    cached.handle().expire_tag(&shelf(1), Duration::ZERO).await.expect("it works");
    sleep(SECOND).await;
    let why = StaleReason::Revalidating;
    assert_eq!(status(&cached, 1).await, CacheStatus::Stale { why, stale_for: SECOND });
    idle().await;
    assert_eq!((answer(&cached, 1).await, loader.loads()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn without_a_stale_window_entries_are_removed() {
    let loader = Loader::new();
    let cached = tagged(MemoryStore::new(10), &loader);
    answer(&cached, 1).await;
    cached.handle().expire_tag(&shelf(1), Duration::ZERO).await.expect("it works");
    assert_eq!(answer(&cached, 1).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_began_before_it_is_not_kept() {
    let loader = Loader::gated();
    let cached = stale_while_revalidate(&loader);
    let asked = ask(&cached, 1);
    loader.has_begun(1).await;
    cached.handle().expire_tag(&shelf(1), Duration::ZERO).await.expect("it works");
    loader.let_go(1);
    assert_eq!(asked.await.expect("no panic").1, CacheStatus::Led { stored: false });
}

/// A hundred hot keys share a tag. Over a spread, their loads are spread, and no caller waits.
#[tokio::test(start_paused = true)]
async fn over_a_spread_the_loads_are_spread_and_no_caller_waits() {
    let loader = Loader::new();
    let cached = stale_while_revalidate(&loader);
    for item in 0..100 {
        answer(&cached, item).await;
    }
    let catalog = Tag::of("catalog");
    cached.handle().expire_tag(&catalog, Duration::from_secs(10)).await.expect("it works");
    let mut per_second = Vec::new();
    for _ in 0..10 {
        let before = loader.loads();
        for item in 0..100 {
            let status = status(&cached, item).await;
            let is_hit = matches!(status, CacheStatus::Hit { .. } | CacheStatus::Stale { .. });
            assert!(is_hit, "{status:?}");
        }
        sleep(SECOND).await;
        per_second.push(loader.loads() - before);
    }
    for item in 0..100 {
        answer(&cached, item).await;
    }
    idle().await;
    assert_eq!(loader.loads(), 200, "one load per key");
    assert!(per_second.iter().all(|loads| *loads < 30), "{per_second:?}");
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_ends_a_spread() {
    let loader = Loader::new();
    let cached = stale_while_revalidate(&loader);
    answer(&cached, 1).await;
    let handle = cached.handle();
    handle.expire_tag(&shelf(1), MINUTE).await.expect("it works");
    assert_eq!(answer(&cached, 1).await, 1);
    handle.invalidate_tag(&shelf(1)).await.expect("it works");
    assert_eq!(answer(&cached, 1).await, 2);
}
