//! Deadlines of callers whose Redis does not answer.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use bellwether::service::{KeyRequest, ReadThrough};
use bellwether::{CacheErrorKind, ReadThroughLayer};
use bellwether_redis::RedisStore;
use futures_util::future::{BoxFuture, FutureExt};
use tokio::time;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, service_fn};

use super::{Site, TIMEOUT};
use crate::catalog::key;

type Loader = BoxCloneSyncService<(u64, Duration), u64, Infallible>;
type Hurried = ReadThrough<Loader, fn(&(u64, Duration)) -> KeyRequest>;

/// A layer whose requests have deadlines, and whose loads take this long.
fn hurried(store: RedisStore, takes: Duration) -> Hurried {
    let ask_of: fn(&(u64, Duration)) -> KeyRequest =
        |(sku, time)| KeyRequest::of(key(*sku)).deadline(time::Instant::now() + *time);
    let load = service_fn(move |(sku, _)| -> BoxFuture<'static, Result<u64, Infallible>> {
        time::sleep(takes).map(move |()| Ok(sku)).boxed()
    });
    ReadThroughLayer::builder(store, ask_of)
        .ttl(Duration::from_secs(60))
        .build()
        .unwrap()
        .layer(BoxCloneSyncService::new(load))
}

/// Each of these is answered before the store's own timeout ends the first request, so its deadline
/// has ended it. The slowest of five tries may be slow for this machine.
async fn misses_its_deadlines(cached: &Hurried) {
    for millis in [10, 50, 100] {
        let deadline = Duration::from_millis(millis);
        let mut took = Vec::new();
        for attempt in 0..5 {
            let began = Instant::now();
            let answer = cached.clone().call((millis * 10 + attempt, deadline)).await;
            took.push(began.elapsed());
            let kind = answer.err().and_then(|error| error.cache().map(|error| error.kind()));
            assert_eq!(kind, Some(CacheErrorKind::DeadlineExceeded));
        }
        took.sort_unstable();
        println!("{deadline:?}: {took:?}");
        assert!(took[3] < TIMEOUT, "{deadline:?}: {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_is_met_while_redis_is_paused() {
    let site = Site::start().await;
    let cached = hurried(site.options().connect().await.expect("a store"), Duration::from_secs(2));
    site.server.stop();
    misses_its_deadlines(&cached).await;
    site.server.resume();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_is_met_by_a_caller_that_leads_and_its_load_is_kept() {
    let site = Site::start().await;
    let cached = hurried(site.options().connect().await.expect("a store"), Duration::from_secs(2));
    misses_its_deadlines(&cached).await;
    let began = Instant::now();
    let answer = cached.clone().call((100, Duration::from_secs(60))).await;
    assert_eq!(answer.expect("an answer"), 100);
    assert!(began.elapsed() < Duration::from_secs(2), "it was loaded again");
}

/// A lookup that is cut short tells the breaker nothing, so such lookups have to be finished.
/// Otherwise a Redis that never answers would never open the breaker, and errors would go on.
#[tokio::test(flavor = "multi_thread")]
async fn callers_with_short_deadlines_find_out_that_redis_is_down_and_are_answered() {
    let site = Site::start().await;
    let store = site.without_probes();
    let cached = hurried(store.clone(), Duration::ZERO);
    let hurry = Duration::from_millis(50);
    cached.clone().call((0, Duration::from_secs(60))).await.expect("an answer");
    site.proxy.blackhole();
    let began = Instant::now();
    while cached.clone().call((1, hurry)).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(10), "there are errors only");
    }
    assert!(store.is_down());
    println!("answers after {:?}", began.elapsed());
}
