//! Only a client that sends conditions gets a 304.

use std::time::Duration;

use axum::body::Body;
use bellwether::MemoryStore;
use bellwether_http::{HttpCacheLayer, RequestKey};
use http::{Request, StatusCode};

use crate::origin::{Origin, ask, cached, field, get, memory, page, pass, text};

const MINUTE: Duration = Duration::from_secs(60);

/// Says "not modified" to all requests, with conditions or without.
fn always_not_modified() -> Origin {
    Origin::counting(&[(":status", "304"), ("etag", "\"1\""), ("cache-control", "max-age=60")])
}

/// Says "not modified" to requests with an entity tag.
fn tagged(fields: &'static [(&'static str, &'static str)]) -> Origin {
    Origin::new(move |request: Request<Body>, nth| async move {
        Ok(match request.headers().contains_key("if-none-match") {
            true => page(&[(":status", "304"), ("etag", "\"1\"")], ""),
            false => page(fields, format!("answer {nth}")),
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_304_to_a_request_without_conditions_is_a_failure_of_the_origin() {
    let key = RequestKey::path();
    let keyed =
        HttpCacheLayer::keyed(MemoryStore::new(100), key.clone()).ttl(MINUTE).build().unwrap();
    let shared = HttpCacheLayer::keyed(MemoryStore::new(100), key).build().unwrap();
    let origin = always_not_modified();
    let caches = [
        cached(&memory().build().unwrap(), &origin),
        cached(&keyed, &origin),
        cached(&shared, &origin),
    ];
    for cache in &caches {
        for fields in [&[][..], &[("if-none-match", "\"1\"")]] {
            let asked = origin.asked();
            let uri = if fields.is_empty() { "http://shop/a" } else { "http://shop/b" };
            let (one, other) =
                tokio::join!(ask(cache, "GET", uri, fields), ask(cache, "GET", uri, fields));
            assert_eq!((one.status(), other.status()), (BAD_GATEWAY, BAD_GATEWAY), "{fields:?}");
            // The request may have caused the failure, so another one is tried.
            assert_eq!(origin.asked(), asked + 2);
            assert_eq!(origin.last("if-none-match"), None);
            let again = ask(cache, "GET", uri, &[]).await;
            assert_ne!(again.status(), StatusCode::NOT_MODIFIED);
            assert_eq!(origin.asked(), asked + 2, "it has failed a moment ago");
        }
    }
}

const BAD_GATEWAY: StatusCode = StatusCode::BAD_GATEWAY;

#[tokio::test(start_paused = true)]
async fn what_was_there_before_is_given_instead_of_a_304_that_was_not_asked_for() {
    let origin = Origin::new(async |_, nth| {
        Ok(if nth == 0 { page(&[], "good") } else { page(&[(":status", "304")], "") })
    });
    let layer = HttpCacheLayer::keyed(MemoryStore::new(100), RequestKey::path());
    let layer = layer.ttl(MINUTE).stale_if_error(MINUTE).jitter(0.0).build().unwrap();
    let cache = cached(&layer, &origin);
    get(&cache, &[]).await;
    pass(61).await;
    assert_eq!(text(get(&cache, &[]).await).await, "good");
    assert_eq!(origin.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_304_about_something_else_is_followed_by_a_request_without_conditions() {
    let dated = ("last-modified", "Wed, 01 Jan 2020 00:00:00 GMT");
    for broken in [false, true] {
        let origin = Origin::new(move |request: Request<Body>, nth| async move {
            let is_asked = request.headers().contains_key("if-modified-since");
            let tag = ("etag", if nth == 0 { "\"1\"" } else { "\"2\"" });
            let status = if nth > 0 && (is_asked || broken) { "304" } else { "200" };
            let fields = [("cache-control", "max-age=60"), dated, tag, (":status", status)];
            Ok(page(&fields, format!("answer {nth}")))
        });
        let cache = cached(&memory().build().unwrap(), &origin);
        get(&cache, &[]).await;
        pass(61).await;
        let answer = get(&cache, &[]).await;
        assert_eq!((origin.asked(), origin.last("if-none-match")), (3, None));
        match broken {
            true => assert_eq!(answer.status(), BAD_GATEWAY),
            false => assert_eq!(text(answer).await, "answer 2"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn past_the_cache_a_304_is_for_those_only_that_asked_with_conditions() {
    let since = "Wed, 01 Jan 2020 00:00:00 GMT";
    for (method, fields) in [
        ("GET", &[("cache-control", "no-store")][..]),
        ("GET", &[("upgrade", "websocket"), ("connection", "upgrade")]),
        ("GET", &[("if-match", "\"1\"")]),
        ("HEAD", &[("cache-control", "no-store")]),
    ] {
        let cache = cached(&memory().build().unwrap(), &always_not_modified());
        let answer = ask(&cache, method, "http://shop/item", fields).await;
        assert_eq!(answer.status(), BAD_GATEWAY, "{method} {fields:?}");
        assert!(text(answer).await.contains("origin"));
        for condition in [("if-none-match", "\"1\""), ("if-modified-since", since)] {
            let fields = [fields, &[condition]].concat();
            let answer = ask(&cache, method, "http://shop/item", &fields).await;
            assert_eq!(answer.status(), StatusCode::NOT_MODIFIED, "{method} {fields:?}");
            assert_eq!(field(&answer, "etag"), "\"1\"");
        }
    }
}

/// For a target with private responses, the origin gets the conditions of each caller.
#[tokio::test(start_paused = true)]
async fn the_304_of_one_client_is_given_to_no_other() {
    let private: &[_] = &[("cache-control", "private"), ("etag", "\"1\"")];
    let key = RequestKey::path();
    let keyed = HttpCacheLayer::keyed(MemoryStore::new(100), key).ttl(MINUTE).build().unwrap();
    let origin = tagged(private);
    for cache in [cached(&memory().build().unwrap(), &origin), cached(&keyed, &origin)] {
        assert_eq!(get(&cache, &[]).await.status(), StatusCode::OK);
        let has_it = [("if-none-match", "\"1\"")];
        let (one, other) = tokio::join!(get(&cache, &has_it), get(&cache, &[]));
        assert_eq!((one.status(), other.status()), (StatusCode::NOT_MODIFIED, StatusCode::OK));
        let (one, other) = tokio::join!(get(&cache, &[]), get(&cache, &has_it));
        assert_eq!((one.status(), other.status()), (StatusCode::OK, StatusCode::NOT_MODIFIED));
    }
}
