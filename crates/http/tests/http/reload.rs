//! Requests with `no-cache`, which reload.

use std::time::Duration;

use axum::body::Body;
use bellwether_http::HttpCache;
use futures_util::future::join_all;
use http::{Request, StatusCode};
use tokio::time::sleep;

use crate::origin::{Origin, cached, field, get, is_hit, memory, page, pass, says, text};

const RELOAD: (&str, &str) = ("cache-control", "no-cache");

const MINUTE: (&str, &str) = ("cache-control", "max-age=60");

fn has(request: &Request<Body>, name: &str) -> bool {
    request.headers().contains_key(name)
}

/// Whether all callers get the response that was stored before, without a request to the origin.
async fn is_kept(cache: &HttpCache<Origin>, origin: &Origin) -> bool {
    let before = origin.asked();
    let answers = join_all((0..50).map(async |_| get(cache, &[]).await)).await;
    answers.iter().all(is_hit) && origin.asked() == before
}

#[tokio::test(start_paused = true)]
async fn a_reload_with_credentials_leaves_the_stored_response_to_others() {
    let origin = Origin::new(async |request: Request<_>, nth| {
        sleep(Duration::from_millis(50)).await;
        let status = if has(&request, "if-none-match") { "304" } else { "200" };
        let text = if status == "304" { String::new() } else { format!("answer {nth}") };
        Ok(page(&[(":status", status), MINUTE, ("etag", "\"a\"")], text))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    let own = get(&cache, &[("authorization", "x"), RELOAD]).await;
    assert_eq!((origin.asked(), text(own).await.as_str()), (2, "answer 0"));
    assert!(is_kept(&cache, &origin).await);
}

#[tokio::test(start_paused = true)]
async fn a_reload_with_a_private_response_leaves_the_stored_response_to_others() {
    for own in [
        &[(":status", "431")][..],
        &[(":status", "429")],
        &[MINUTE, ("set-cookie", "a=b")],
        &[("cache-control", "no-store")],
        &[("etag", "\"b\"")],
        &[(":status", "503"), ("cache-control", "no-store")],
    ] {
        let origin = Origin::new(move |request: Request<_>, nth| async move {
            sleep(Duration::from_millis(50)).await;
            let fields = if has(&request, "cookie") { own } else { &[MINUTE] };
            Ok(page(fields, format!("answer {nth}")))
        });
        let cache = cached(&memory().build().unwrap(), &origin);
        get(&cache, &[]).await;
        assert_eq!(text(get(&cache, &[("cookie", "a"), RELOAD]).await).await, "answer 1");
        assert!(is_kept(&cache, &origin).await, "{own:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reload_that_meets_an_error_gets_that_error() {
    let origin = Origin::new(async |_, nth| {
        let busy = [(":status", "503"), ("vary", "origin"), ("retry-after", "7")];
        Ok(if nth == 0 { page(&[MINUTE], "good") } else { page(&busy, "busy") })
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    let answer = get(&cache, &[RELOAD]).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(field(&answer, "retry-after"), "7");
    assert_eq!(text(answer).await, "busy");
    assert!(is_kept(&cache, &origin).await);
}

/// A client cannot send the requests of a crowd to the origin.
#[tokio::test(start_paused = true)]
async fn what_a_request_says_is_ignored_if_the_program_says_so() {
    let origin = Origin::new(async |_, nth| {
        sleep(Duration::from_millis(50)).await;
        Ok(page(&[MINUTE], nth.to_string()))
    });
    let key = bellwether_http::RequestKey::path();
    let keyed = bellwether_http::HttpCacheLayer::keyed(bellwether::MemoryStore::new(100), key);
    for cache in [
        cached(&memory().ignoring_request_cache_control().build().unwrap(), &origin),
        cached(&keyed.ttl(Duration::from_secs(60)).build().unwrap(), &origin),
    ] {
        let before = origin.asked();
        for says in ["no-store", "no-cache", "max-age=0", "no-store, only-if-cached"] {
            let fields = [("cache-control", says), ("pragma", "no-cache")];
            let crowd = (0..50).map(async |_| get(&cache, &fields).await.status());
            assert_eq!(join_all(crowd).await, [StatusCode::OK; 50], "{says}");
        }
        assert_eq!(origin.asked(), before + 1);
    }
}

/// RFC 5861, section 4: `stale-if-error` counts "regardless of other freshness information".
#[tokio::test(start_paused = true)]
async fn a_reload_whose_origin_fails_gets_what_is_stored_if_that_says_so() {
    for (terms, failure, status) in [
        ("max-age=60, stale-if-error=60", "reset", 200),
        ("max-age=60, stale-if-error=60", "503", 200),
        ("max-age=60, stale-if-error=60, must-revalidate", "reset", 502),
        ("max-age=60", "reset", 502),
        ("max-age=60", "503", 503),
    ] {
        for vary in ["", "accept"] {
            let origin = Origin::new(move |_, nth| async move {
                match failure {
                    _ if nth == 0 => Ok(page(&[("cache-control", terms), ("vary", vary)], "old")),
                    "reset" => Err("connection reset".into()),
                    status => Ok(page(&[(":status", status)], "")),
                }
            });
            let cache = cached(&memory().build().unwrap(), &origin);
            get(&cache, &[]).await;
            for (age, said) in [(0, "fwd=request"), (61, "fwd=stale")] {
                pass(age).await;
                let answer = get(&cache, &[RELOAD]).await;
                assert_eq!(answer.status(), status, "{terms} {vary:?} after {age} s: {answer:?}");
                if status == 200 {
                    assert!(
                        says(&answer, said) && says(&answer, "detail=load-failed"),
                        "{answer:?}"
                    );
                    assert_eq!(says(&answer, "fwd-status=503"), failure == "503", "{answer:?}");
                }
            }
            pass(61).await;
            assert_ne!(get(&cache, &[RELOAD]).await.status(), 200, "the window is over");
        }
    }
}

/// A cookie that is set, or a page for one client, says nothing about the stored response (RFC 5861,
/// section 3).
#[tokio::test(start_paused = true)]
async fn a_stale_response_is_revalidated_although_reloads_got_private_ones() {
    for is_variant in [false, true] {
        let vary = if is_variant { ("vary", "accept") } else { ("x-other", "1") };
        let origin = Origin::new(move |request: Request<Body>, nth| async move {
            let terms = ("cache-control", "max-age=60, stale-while-revalidate=600");
            let fields = match has(&request, "cache-control") {
                true => [("set-cookie", "a=b"), vary],
                false => [terms, vary],
            };
            Ok(page(&fields, format!("answer {nth}")))
        });
        let cache = cached(&memory().build().unwrap(), &origin);
        get(&cache, &[]).await;
        pass(61).await;
        for _ in 0..2 {
            get(&cache, &[("cache-control", "no-cache")]).await;
        }
        sleep(Duration::from_millis(1)).await;
        let reloads = origin.asked();
        for _ in 0..20 {
            let answer = get(&cache, &[]).await;
            assert!(says(&answer, "detail=revalidating"), "{answer:?}");
        }
        sleep(Duration::from_millis(1)).await;
        let answer = text(get(&cache, &[]).await).await;
        assert_eq!((answer, origin.asked()), (format!("answer {reloads}"), reloads + 1));
    }
}
