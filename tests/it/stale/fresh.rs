//! For how long an answer is fresh.

use std::time::Duration;

use bellwether::codec::Cacheability;
use bellwether::{CacheStatus, Lifetimes, MemoryStore, StaleReason};
use bellwether_test::StoreExt as _;
use bellwether_testkit::caches::{MINUTE, NO_TIME, SECOND, answer, ask, key, layer};
use bellwether_testkit::loaders::Loader;
use tokio::time::sleep;
use tower::Layer;

use super::PLACES;

#[tokio::test(start_paused = true)]
async fn jitter_shortens_a_ttl_and_never_prolongs_it() {
    let store = MemoryStore::new(1_000);
    let cached = layer(store.clone()).jitter(0.5).build().unwrap().layer(Loader::new());
    let mut seen = Vec::new();
    for item in 0..100 {
        answer(&cached, item).await;
        let entry = store.find(key(item)).await.unwrap().expect("it is kept");
        seen.push(entry.lifetimes().ttl());
    }
    assert!(seen.iter().all(|ttl| *ttl >= MINUTE / 2 && *ttl <= MINUTE), "{seen:?}");
    let least = seen.iter().min().unwrap();
    let most = seen.iter().max().unwrap();
    assert!(*least < SECOND * 40 && *most > SECOND * 50, "from {least:?} to {most:?}");
}

#[tokio::test(start_paused = true)]
async fn jitter_leaves_the_stale_lifetimes_as_they_are() {
    let store = MemoryStore::new(10);
    let layer = layer(store.clone()).stale_while_revalidate(MINUTE).stale_if_error(MINUTE * 2);
    answer(&layer.jitter(1.0).build().unwrap().layer(Loader::new()), 1).await;
    let windows = store.find(key(1)).await.unwrap().expect("it is kept").lifetimes();
    assert_eq!((windows.while_revalidate(), windows.if_error()), (MINUTE, MINUTE * 2));
}

#[tokio::test(start_paused = true)]
async fn an_answer_can_say_for_how_long_it_is_kept() {
    for place in PLACES {
        let windows = Lifetimes::fresh_for(SECOND).stale_while_revalidate(SECOND);
        let layer = layer(place(&MemoryStore::new(10)));
        let layer =
            layer.classify(move |_: &usize| Cacheability::KeepFor(windows)).build().unwrap();
        let cached = layer.layer(Loader::new());
        answer(&cached, 1).await;
        sleep(SECOND - Duration::from_millis(1)).await;
        let (_, status) = ask(&cached, 1).await.unwrap();
        assert_eq!(status, CacheStatus::Hit { fresh_for: Some(Duration::from_millis(1)) });
        sleep(Duration::from_millis(1)).await;
        let (_, status) = ask(&cached, 1).await.unwrap();
        assert_eq!(
            status,
            CacheStatus::Stale { why: StaleReason::Revalidating, stale_for: NO_TIME }
        );
    }
}
