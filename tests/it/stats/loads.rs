//! Each call of the loader counts once when it starts and once when it ends.

use std::convert::Infallible;

use bellwether::codec::Cacheability;
use bellwether::service::KeyRequest;
use bellwether::stats::CacheStats;
use bellwether::{ErrorClass, Lifetimes, MemoryStore, ReadThroughLayer, Wait, WhenAbandoned};
use bellwether_testkit::caches::{
    JSON, MINUTE, SECOND, answer, answers, ask, burst, cached, idle, key, layer, lease, put_for,
    settled,
};
use bellwether_testkit::loaders::{End, Loader, Refusal};
use futures_util::FutureExt;
use tokio::time::sleep;
use tower::{Layer, Service, service_fn};

use crate::support::store::{UNREACHABLE, local, remote};

/// What is counted, by name.
type Counts = Vec<(&'static str, u64)>;

/// The reasons and the results of all loads.
fn counted(stats: &CacheStats) -> (Counts, Counts) {
    let more = |(_, count): &(&str, u64)| *count > 0;
    let ended = stats.load_times.by_name().map(|(result, times)| (result, times.count()));
    (stats.loads.by_name().filter(more).collect(), ended.filter(more).collect())
}

fn one(reason: &'static str, result: &'static str) -> (Counts, Counts) {
    (vec![(reason, 1)], vec![(result, 1)])
}

#[tokio::test(start_paused = true)]
async fn loads_are_counted_by_their_results() {
    let ends = [
        (End::Answer, "succeeded"),
        (End::Fail, "failed"),
        (End::Panic, "panicked"),
        (End::PanicInCall, "panicked"),
    ];
    for (end, result) in ends {
        let loader = Loader::new();
        loader.ends_by(end);
        let cached = cached(MemoryStore::new(10), &loader);
        settled(vec![ask(&cached, 1)]).await;
        assert_eq!(counted(&cached.stats()), one("miss", result));
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_counted_by_their_class() {
    let classes = [
        (Cacheability::NotFound, "not_found"),
        (Cacheability::PrivateKey, "private"),
        (Cacheability::PrivateOnce, "private"),
        (Cacheability::Failure, "failed"),
    ];
    for (class, result) in classes {
        let layer = layer(MemoryStore::new(10)).classify(move |_: &usize| class).build().unwrap();
        let cached = layer.layer(Loader::new());
        settled(vec![ask(&cached, 1)]).await;
        assert_eq!(counted(&cached.stats()), one("miss", result));
    }
}

#[tokio::test(start_paused = true)]
async fn errors_are_counted_by_their_class() {
    let classes = [
        (ErrorClass::NotFound, "not_found"),
        (ErrorClass::NotFoundFor(SECOND), "not_found"),
        (ErrorClass::Failure, "failed"),
        (ErrorClass::SourceFailure, "failed"),
        (ErrorClass::Retry, "failed"),
        (ErrorClass::NotRemembered, "failed"),
    ];
    for (class, result) in classes {
        let loader = Loader::new();
        loader.ends_by(End::Fail);
        let layer = layer(MemoryStore::new(10)).classify_error(move |_: &Refusal| class);
        let cached = layer.build().unwrap().layer(loader);
        settled(vec![ask(&cached, 1)]).await;
        assert_eq!(counted(&cached.stats()), one("miss", result));
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_over_the_limit_has_timed_out() {
    let layer = layer(MemoryStore::new(10)).load_timeout(SECOND).build().unwrap();
    let cached = layer.layer(Loader::gated());
    settled(vec![ask(&cached, 1)]).await;
    assert_eq!(counted(&cached.stats()), one("miss", "timed_out"));
}

#[tokio::test(start_paused = true)]
async fn a_load_runs_until_it_ends_or_is_cancelled() {
    let loader = Loader::gated();
    let layer = layer(MemoryStore::new(10)).when_abandoned(WhenAbandoned::Cancel).build().unwrap();
    let cached = layer.layer(loader.clone());
    let asked = ask(&cached, 1);
    loader.has_begun(1).await;
    assert_eq!(cached.stats().running_loads(), 1);
    asked.abort();
    idle().await;
    assert_eq!(cached.stats().running_loads(), 0);
    assert_eq!(counted(&cached.stats()), one("miss", "cancelled"));
}

#[tokio::test(start_paused = true)]
async fn a_load_that_replaces_a_stale_answer_is_a_revalidation() {
    for callers in [1, 2] {
        let memory = MemoryStore::new(10);
        let lifetimes = Lifetimes::fresh_for(SECOND).stale_while_revalidate(MINUTE);
        put_for(&memory, 1, "42", JSON, lifetimes).await;
        sleep(SECOND).await;
        let layer = layer(remote(&memory)).stale_while_revalidate(MINUTE).build().unwrap();
        let cached = layer.layer(Loader::new());
        settled((0..callers).map(|_| ask(&cached, 1)).collect()).await;
        idle().await;
        assert_eq!(counted(&cached.stats()), one("revalidation", "succeeded"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_before_the_end_is_early_and_a_forced_one_is_forced() {
    let layer = || {
        let layer = ReadThroughLayer::builder(MemoryStore::new(10), |item: &u64| match item {
            0 => KeyRequest::of(key(0)).force_refresh(),
            _ => KeyRequest::of(key(*item)),
        });
        layer.ttl(MINUTE).refresh_early(100.0)
    };
    let mut forced = layer().name("forced").build().unwrap().layer(Loader::new());
    forced.call(0).await.unwrap();
    assert_eq!(counted(&forced.stats()), one("forced", "succeeded"));

    let mut early = layer().build().unwrap().layer(Loader::taking(SECOND * 10));
    early.call(1).await.unwrap();
    sleep(SECOND * 49).await;
    while early.stats().loads.early == 0 {
        early.call(1).await.unwrap();
        idle().await;
    }
    assert_eq!(early.stats().loads.total(), 2);
}

#[tokio::test(start_paused = true)]
async fn loads_without_a_lease_are_counted_by_their_reason() {
    let broken = local(&MemoryStore::new(10));
    broken.on_any().fail(UNREACHABLE);
    let cached = layer(broken).build().unwrap().layer(Loader::new());
    answer(&cached, 1).await;
    assert_eq!(counted(&cached.stats()), one("store_failed", "succeeded"));

    let memory = MemoryStore::new(10);
    let _held = lease(&memory, 1, MINUTE).await;
    let impatient =
        layer(memory).wait(Wait::at_most(SECOND).then_load()).build().unwrap().layer(Loader::new());
    answer(&impatient, 1).await;
    assert_eq!(counted(&impatient.stats()), one("wait_ran_out", "succeeded"));
}

#[tokio::test(start_paused = true)]
async fn loads_past_the_cache_are_counted_from_their_first_poll_on() {
    let unkeyed = ReadThroughLayer::builder(MemoryStore::new(10), |_: &u64| KeyRequest::none())
        .build()
        .unwrap();
    let mut service = unkeyed.layer(service_fn(async |_: u64| Ok::<_, Infallible>(7)));
    drop(service.call(1));
    assert_eq!(unkeyed.stats().loads.total(), 0);
    service.call(1).now_or_never().unwrap().unwrap();
    assert_eq!(counted(&unkeyed.stats()), one("no_key", "succeeded"));

    let private = layer(MemoryStore::new(10)).classify(|_: &usize| Cacheability::PrivateKey);
    let cached = private.build().unwrap().layer(Loader::new());
    answers(burst(&cached, 1, 10)).await;
    let expected = (vec![("miss", 1), ("private", 9)], vec![("succeeded", 9), ("private", 1)]);
    assert_eq!(counted(&cached.stats()), expected);
}
