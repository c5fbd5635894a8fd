//! Many callers at once.

use std::collections::HashSet;
use std::time::Duration;

use axum::body::Body;
use bellwether::MemoryStore;
use bellwether::store::Store;
use bellwether_http::HttpCache;
use bellwether_testkit::servers::Reply;
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use http::Request;
use tokio::time::{Instant, sleep};
use tower::BoxError;

use crate::origin::{Origin, cached, get, memory, page, plain, redis, text};

const LOAD: Duration = Duration::from_millis(100);

fn slow(fields: &'static [(&'static str, &'static str)]) -> Origin {
    Origin::new(async move |_, nth| {
        sleep(LOAD).await;
        Ok(page(fields, format!("secret {nth}")))
    })
}

async fn burst(store: impl Store, origin: &Origin) -> Vec<String> {
    let cache = cached(&plain(store).build().unwrap(), origin);
    join_all((0..100).map(async |_| text(get(&cache, &[]).await).await)).await
}

async fn one_load(store: impl Store) {
    let origin = slow(&[("cache-control", "max-age=60")]);
    let answers = burst(store, &origin).await;
    assert_eq!(answers, vec!["secret 0"; 100]);
    assert_eq!(origin.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cold_burst_is_one_load() {
    one_load(MemoryStore::new(1_000)).await;
}

#[tokio::test]
async fn a_cold_burst_over_redis_is_one_load() {
    let (_server, store) = redis().await;
    one_load(store).await;
}

#[tokio::test(start_paused = true)]
async fn callers_of_a_private_answer_do_not_queue() {
    let origin = slow(&[("cache-control", "private, max-age=60")]);
    let began = Instant::now();
    let answers = burst(MemoryStore::new(1_000), &origin).await;
    let distinct: HashSet<_> = answers.iter().collect();
    assert_eq!(distinct.len(), 100, "each has its own");
    // The first response shows that it is private, then all waiters ask the origin concurrently.
    assert!(began.elapsed() < LOAD * 3, "{:?}", began.elapsed());
}

#[tokio::test]
async fn nothing_private_is_ever_in_the_store() {
    let (server, store) = redis().await;
    for fields in [
        &[("cache-control", "private, max-age=60")][..],
        &[("cache-control", "max-age=60"), ("set-cookie", "a=b")],
        &[("cache-control", "no-store")],
        &[("cache-control", "max-age=60"), ("vary", "cookie")],
        &[("cache-control", "max-age=60"), ("vary", "*")],
    ] {
        let origin = Origin::new(async move |_, _| Ok(page(fields, "secret")));
        let cache = cached(&plain(store.clone()).build().unwrap(), &origin);
        for _ in 0..3 {
            assert_eq!(text(get(&cache, &[]).await).await, "secret");
        }
        assert_eq!(origin.asked(), 3, "{fields:?}");
    }
    let Reply::Array(names) = server.command(&["KEYS", "*"]) else { panic!("no list") };
    assert!(!names.is_empty(), "it is known of them that they are not kept");
    for name in names {
        let dump = format!("{:?}", server.try_command(&["GET", &name.text()]));
        assert!(!dump.contains("secret"), "{dump}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_with_credentials_do_not_end_coalescing_for_requests_without() {
    let origin = Origin::new(async |_, nth| {
        sleep(LOAD).await;
        Ok(page(&[("cache-control", "max-age=60")], format!("answer {nth}")))
    });
    let cache = cached(&plain(MemoryStore::new(1_000)).build().unwrap(), &origin);
    let own = get(&cache, &[("authorization", "Bearer x")]).await;
    assert_eq!(text(own).await, "answer 0");
    let answers = join_all((0..100).map(async |_| text(get(&cache, &[]).await).await)).await;
    assert_eq!(answers, vec!["answer 1"; 100]);
}

/// An origin with a page that may be stored, unless a request has an odd field.
fn odd() -> Origin {
    Origin::new(async |request: Request<Body>, _| {
        sleep(LOAD).await;
        let is_odd = request.headers().contains_key("x-odd");
        let says = if is_odd { "private" } else { "max-age=60" };
        Ok(page(&[("cache-control", says)], if is_odd { "odd" } else { "plain" }))
    })
}

async fn ask_at_once(cache: &HttpCache<Origin>, callers: usize, fields: &[(&str, &str)]) {
    join_all((0..callers).map(async |_| text(get(cache, fields).await).await)).await;
}

#[tokio::test(start_paused = true)]
async fn one_private_answer_leaves_the_protection_on() {
    let origin = odd();
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[("x-odd", "1")]).await;
    ask_at_once(&cache, 200, &[]).await;
    assert_eq!(origin.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn private_answers_let_no_more_requests_past_than_there_were_of_them() {
    for odd_ones in [2, 5, 20] {
        let origin = odd();
        let cache = cached(&memory().build().unwrap(), &origin);
        for _ in 0..odd_ones {
            get(&cache, &[("x-odd", "1")]).await;
        }
        ask_at_once(&cache, 200, &[]).await;
        let plain = origin.asked() - odd_ones;
        assert!(plain <= odd_ones + 1, "{plain} plain requests after {odd_ones} odd ones");
        ask_at_once(&cache, 200, &[]).await;
        assert_eq!(origin.asked(), odd_ones + plain, "it is kept");
    }
}

#[tokio::test(start_paused = true)]
async fn users_of_a_private_page_do_not_wait_for_each_other_once_that_is_known() {
    let origin = slow(&[("cache-control", "private")]);
    let cache = cached(&memory().build().unwrap(), &origin);
    ask_at_once(&cache, 100, &[]).await;
    for _ in 0..3 {
        let began = Instant::now();
        ask_at_once(&cache, 100, &[]).await;
        assert_eq!(began.elapsed(), LOAD);
    }
}

/// A head at once, and a body that takes two seconds.
fn slow_body(fields: &'static [(&'static str, &'static str)]) -> Origin {
    Origin::new(async move |_, nth| {
        let body = stream::once(async move {
            sleep(Duration::from_secs(2)).await;
            Ok::<_, BoxError>(Bytes::from(format!("page {nth}")))
        });
        Ok(page(fields, Body::from_stream(body)))
    })
}

#[tokio::test(start_paused = true)]
async fn waiters_start_as_soon_as_a_head_says_that_its_answer_is_not_for_them() {
    for fields in [
        &[("cache-control", "private")][..],
        &[("cache-control", "no-store")],
        &[],
        &[("cache-control", "no-cache"), ("etag", "\"x\"")],
        &[("set-cookie", "a=b"), ("cache-control", "max-age=60")],
    ] {
        let origin = slow_body(fields);
        let began = Instant::now();
        let cache = cached(&memory().build().unwrap(), &origin);
        let answers = join_all((0..5).map(async |_| {
            let answer = get(&cache, &[]).await;
            assert_eq!(began.elapsed(), Duration::ZERO, "the first byte waits for no body");
            text(answer).await
        }));
        let distinct: HashSet<_> = answers.await.into_iter().collect();
        assert_eq!((distinct.len(), origin.asked()), (5, 5), "{fields:?}");
        assert_eq!(began.elapsed(), Duration::from_secs(2), "{fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_bound_few_requests_whose_responses_are_not_shared_ask_at_once() {
    for fields in [&[("cache-control", "private")][..], &[(":status", "404")]] {
        let origin = slow(fields);
        let cache = cached(&memory().max_unshared_per_target(10).build().unwrap(), &origin);
        let began = Instant::now();
        ask_at_once(&cache, 101, &[]).await;
        // One shows that they are not shared, then ten at a time follow.
        assert_eq!((origin.asked(), began.elapsed()), (101, LOAD * 11), "{fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_bound_a_slow_response_lets_the_next_request_go_after_a_while() {
    let origin = Origin::new(async |_, _| {
        let body = Body::from_stream(stream::pending::<Result<Bytes, BoxError>>());
        Ok(page(&[("cache-control", "max-age=60")], body))
    });
    let cache = cached(&memory().max_unshared_per_target(2).build().unwrap(), &origin);
    let began = Instant::now();
    let answers = join_all((0..5).map(async |_| {
        let answer = get(&cache, &[]).await;
        let elapsed = began.elapsed().as_secs();
        (answer, elapsed)
    }));
    let (answers, mut seconds): (Vec<_>, Vec<_>) = answers.await.into_iter().unzip();
    seconds.sort_unstable();
    assert_eq!(seconds, [2, 2, 2, 4, 4]);
    drop(answers);
}

#[tokio::test(start_paused = true)]
async fn with_a_bound_a_request_does_not_wait_for_ever() {
    let origin = slow(&[("cache-control", "private")]);
    let layer = memory().max_unshared_per_target(1);
    let cache = cached(&layer.load_timeout(LOAD * 3 / 2).build().unwrap(), &origin);
    let statuses = join_all((0..4).map(async |_| get(&cache, &[]).await.status().as_u16())).await;
    assert_eq!(statuses, [200, 200, 200, 503]);
}
