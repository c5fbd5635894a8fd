//! Each request counts once, whatever it takes to answer it, and says how it was answered.

use std::time::Duration;

use bellwether::stats::RequestStats;
use bellwether::{BypassReason, CacheStatus};
use futures_util::future::join_all;
use http::Request;
use tokio::time::sleep;

use crate::origin::{
    Answer, Origin, ask, cached, get, is_hit, memory, page, patient_redis, plain, says,
};

fn polyglot() -> Origin {
    Origin::new(async move |request: Request<_>, _| {
        sleep(Duration::from_millis(50)).await;
        let said = request.headers().get("accept-language");
        let language = said.map_or("none", |said| said.to_str().unwrap()).to_owned();
        let fields = [("cache-control", "max-age=60"), ("vary", "accept-language")];
        Ok(page(&fields, language))
    })
}

fn counted(requests: &RequestStats) -> Vec<(&'static str, u64)> {
    requests.by_name().filter(|(_, count)| *count > 0).collect()
}

fn status(answer: &Answer) -> &CacheStatus {
    answer.extensions().get().expect("a status")
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_variant_counts_once() {
    let origin = polyglot();
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &origin);
    let german = [("accept-language", "de")];
    let callers = (0..100).map(|_| get(&cache, &german));
    let answers = join_all(callers).await;
    let requests = layer.stats().requests;
    assert_eq!(requests.total(), 100, "{:?}", counted(&requests));
    // As the responses say: the others waited for what varies, and found the variant then.
    let led = answers.iter().filter(|it| matches!(status(it), CacheStatus::Led { .. })).count();
    let hits = answers.iter().filter(|it| matches!(status(it), CacheStatus::Hit { .. })).count();
    assert_eq!((led, requests.led()), (1, 1));
    assert_eq!((hits, requests.hits()), (99, 99), "{:?}", counted(&requests));
    assert_eq!(layer.stats().loads.total(), origin.asked() as u64);
    for _ in 0..10 {
        let answer = get(&cache, &german).await;
        assert!(matches!(status(&answer), CacheStatus::Hit { .. }), "{answer:?}");
    }
    let requests = layer.stats().requests;
    assert_eq!((requests.hit_local, requests.total()), (109, 110), "{:?}", counted(&requests));
}

#[tokio::test(start_paused = true)]
async fn the_hit_of_a_head_or_a_range_counts_where_that_of_a_get_would() {
    for vary in ["accept-language", ""] {
        let fields = [("cache-control", "max-age=60"), ("vary", vary)];
        let fields = fields.map(|(name, value)| (format!("echo-{name}"), value));
        let fields: Vec<_> = fields.iter().map(|(name, value)| (&**name, *value)).collect();
        let layer = memory().build().unwrap();
        let cache = cached(&layer, &Origin::echoing());
        get(&cache, &fields).await;
        get(&cache, &fields).await;
        let ranged = [&fields[..], &[("range", "bytes=0-0")]].concat();
        for (method, fields) in [("HEAD", &fields), ("GET", &ranged)] {
            let answer = ask(&cache, method, "http://shop/item", fields).await;
            assert!(matches!(status(&answer), CacheStatus::Hit { .. }), "{vary}: {answer:?}");
        }
        let requests = layer.stats().requests;
        assert_eq!((requests.hit_local, requests.hit_store), (3, 0), "{:?}", counted(&requests));
    }
}

#[tokio::test]
async fn the_hit_of_a_head_in_a_store_outside_counts_as_one_of_the_store() {
    let (_server, store) = patient_redis().await;
    let layer = plain(store).build().unwrap();
    let cache = cached(&layer, &Origin::counting(&[("cache-control", "max-age=60")]));
    get(&cache, &[]).await;
    ask(&cache, "HEAD", "http://shop/item", &[]).await;
    let requests = layer.stats().requests;
    assert_eq!((requests.hit_local, requests.hit_store), (0, 1), "{:?}", counted(&requests));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_cache_forwards_counts_as_a_bypass() {
    let origin = Origin::counting(&[("cache-control", "max-age=60")]);
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &origin);
    let no_key = CacheStatus::Bypass(BypassReason::NoKey);
    for method in ["POST", "OPTIONS"] {
        let answer = ask(&cache, method, "http://shop/item", &[]).await;
        assert_eq!(*status(&answer), no_key, "{method}");
    }
    let answer = get(&cache, &[("cache-control", "no-store")]).await;
    assert_eq!(*status(&answer), no_key);
    let stats = layer.stats();
    assert_eq!(counted(&stats.requests), [("bypassed_no_key", 3)]);
    // A change is no load.
    assert_eq!((stats.loads.no_key, stats.running_loads()), (2, 0));
    assert_eq!(stats.load_times.succeeded.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_private_response_counts_each_caller_once_and_each_load() {
    let origin = Origin::counting(&[("cache-control", "private")]);
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &origin);
    for _ in 0..5 {
        join_all((0..10).map(|_| get(&cache, &[]))).await;
    }
    let stats = layer.stats();
    assert_eq!(stats.requests.total(), 50, "{:?}", counted(&stats.requests));
    assert_eq!(stats.loads.total(), origin.asked() as u64, "{:?}", stats.loads);
    assert_eq!(stats.running_loads(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stored_response_to_head_and_one_that_is_not_there_count_once() {
    let origin = Origin::counting(&[("cache-control", "max-age=60")]);
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &origin);
    get(&cache, &[]).await;
    let head = ask(&cache, "HEAD", "http://shop/item", &[]).await;
    assert!(matches!(status(&head), CacheStatus::Hit { .. }), "{head:?}");
    let only = [("cache-control", "only-if-cached")];
    let none = ask(&cache, "GET", "http://shop/other", &only).await;
    assert_eq!(*status(&none), CacheStatus::Failed);
    let requests = layer.stats().requests;
    let expected = [("hit_local", 1), ("led_stored", 1), ("failed_loader", 1)];
    assert_eq!(counted(&requests), expected);
}

/// Two caches over one store: in one process it is on, in another one off.
#[tokio::test(start_paused = true)]
async fn a_layer_that_is_off_forwards_each_request_and_still_invalidates() {
    let store = bellwether::MemoryStore::new(100);
    let origin = Origin::counting(&[("cache-control", "max-age=60")]);
    let on = cached(&plain(store.clone()).build().unwrap(), &origin);
    let layer = plain(store).enabled(false).build().unwrap();
    let off = cached(&layer, &origin);
    get(&on, &[]).await;
    for _ in 0..2 {
        let answer = get(&off, &[]).await;
        assert_eq!(*status(&answer), CacheStatus::Bypass(BypassReason::Disabled));
        assert!(says(&answer, "fwd=bypass") && says(&answer, "detail=disabled"), "{answer:?}");
    }
    assert_eq!((origin.asked(), layer.stats().requests.bypassed_disabled), (3, 2));
    assert!(is_hit(&get(&on, &[]).await));
    ask(&off, "POST", "http://shop/item", &[]).await;
    assert!(!is_hit(&get(&on, &[]).await));
}
