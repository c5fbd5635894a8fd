//! Freshness and validation of stored responses.

use std::time::{Duration, SystemTime};

use bellwether::MemoryStore;
use bellwether_http::HttpCacheLayer;
use http::{StatusCode, Uri};
use tokio::time::sleep;

use crate::origin::{
    Origin, ask, cached, field, get, is_hit, memory, page, pass, redis, says, text,
};

const MINUTE: &[(&str, &str)] = &[("cache-control", "max-age=60"), ("etag", "\"1\"")];

/// Confirms its first response to every request with a condition.
fn validating(fields: &'static [(&'static str, &'static str)]) -> Origin {
    Origin::new(move |request: http::Request<_>, nth| async move {
        let is_asked = request.headers().get("if-none-match").is_some_and(|tag| tag == "\"1\"");
        Ok(match is_asked {
            true => page(&[&[(":status", "304"), ("x-seen", "again")], fields].concat(), ""),
            false => page(fields, format!("answer {nth}")),
        })
    })
}

#[tokio::test(start_paused = true)]
async fn what_is_stale_is_validated_and_not_sent_again() {
    let origin = validating(MINUTE);
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    pass(61).await;
    let answer = get(&cache, &[]).await;
    assert_eq!(origin.last("if-none-match").as_deref(), Some("\"1\""));
    assert!(says(&answer, "fwd=stale") && says(&answer, "fwd-status=304"), "{answer:?}");
    assert_eq!((answer.status(), field(&answer, "x-seen")), (StatusCode::OK, "again"));
    assert_eq!(text(answer).await, "answer 0");
    let answer = get(&cache, &[]).await;
    assert!(is_hit(&answer));
    assert_eq!((origin.asked(), text(answer).await.as_str()), (2, "answer 0"));
}

#[tokio::test(start_paused = true)]
async fn what_is_still_good_is_not_as_old_as_it_was_if_the_origin_sends_no_date() {
    let origin = Origin::new(async |_, nth| {
        let then = httpdate::fmt_http_date(SystemTime::now() - Duration::from_secs(30));
        Ok(match nth {
            0 => page(&[MINUTE[0], MINUTE[1], ("date", &then)], "answer 0"),
            _ => page(&[("cache-control", "max-age=20"), MINUTE[1], (":status", "304")], ""),
        })
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    pass(31).await;
    assert!(says(&get(&cache, &[]).await, "fwd-status=304"));
    pass(19).await;
    assert!(is_hit(&get(&cache, &[]).await));
    assert_eq!(origin.asked(), 2);
}

/// An origin that compares dates only misses a second change within one second. Its entity tag shows
/// it.
#[tokio::test(start_paused = true)]
async fn a_304_that_is_about_something_else_is_not_believed() {
    const DATED: [(&str, &str); 2] =
        [("cache-control", "max-age=60"), ("last-modified", "Wed, 01 Jan 2020 00:00:00 GMT")];
    let origin = Origin::new(async |request: http::Request<_>, nth| {
        let is_dated = request.headers().contains_key("if-modified-since");
        let tag = ("etag", if nth == 0 { "\"1\"" } else { "\"2\"" });
        let status = (":status", if is_dated { "304" } else { "200" });
        Ok(page(&[DATED[0], DATED[1], tag, status], format!("answer {nth}")))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    pass(61).await;
    assert_eq!(text(get(&cache, &[]).await).await, "answer 2");
}

#[tokio::test(start_paused = true)]
async fn an_age_is_given_with_what_was_kept_or_has_aged_elsewhere() {
    let origin = Origin::counting(MINUTE);
    let cache = cached(&memory().build().unwrap(), &origin);
    assert_eq!(field(&get(&cache, &[]).await, "age"), "");
    assert_eq!(field(&get(&cache, &[]).await, "age"), "0");
    let origin = Origin::counting(&[("cache-control", "max-age=60"), ("age", "30")]);
    let cache = cached(&memory().build().unwrap(), &origin);
    assert_eq!(field(&get(&cache, &[]).await, "age"), "30");
    assert_eq!(field(&get(&cache, &[]).await, "age"), "30");
    pass(31).await;
    assert!(!is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_the_response_gets_304_and_the_origin_sends_all_of_it() {
    let origin = validating(MINUTE);
    let cache = cached(&memory().build().unwrap(), &origin);
    for _ in 0..2 {
        let answer = get(&cache, &[("if-none-match", "\"1\"")]).await;
        assert_eq!(answer.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(field(&answer, "etag"), "\"1\"");
        assert_eq!(text(answer).await, "");
    }
    assert_eq!((origin.asked(), origin.last("if-none-match")), (1, None));
    assert_eq!(text(get(&cache, &[]).await).await, "answer 0");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_to_be_given_unasked_is_validated_each_time() {
    let origin = validating(&[("cache-control", "no-cache"), ("etag", "\"1\"")]);
    let cache = cached(&memory().build().unwrap(), &origin);
    for asked in 1..4 {
        assert_eq!(text(get(&cache, &[]).await).await, "answer 0");
        assert_eq!(origin.asked(), asked);
    }
    assert_eq!(origin.last("if-none-match").as_deref(), Some("\"1\""));
}

#[tokio::test(start_paused = true)]
async fn what_is_stale_at_once_is_kept_to_be_validated() {
    let origin = validating(&[("cache-control", "max-age=0"), ("etag", "\"1\"")]);
    let cache = cached(&memory().build().unwrap(), &origin);
    for asked in 1..4 {
        assert_eq!(text(get(&cache, &[]).await).await, "answer 0");
        assert_eq!(origin.asked(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_with_no_cache_validates_the_stored_response() {
    let origin = validating(MINUTE);
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    for demand in ["no-cache", "min-fresh=100"] {
        let asked = origin.asked();
        let answer = get(&cache, &[("cache-control", demand)]).await;
        assert!(says(&answer, "fwd=request"), "{answer:?}");
        assert_eq!(text(answer).await, "answer 0");
        assert_eq!(origin.asked(), asked + 1, "{demand}");
    }
    assert!(is_hit(&get(&cache, &[("cache-control", "min-fresh=10")]).await));
}

#[tokio::test(start_paused = true)]
async fn only_if_cached_without_a_stored_response_is_504() {
    let origin = validating(MINUTE);
    let cache = cached(&memory().build().unwrap(), &origin);
    let only = [("cache-control", "only-if-cached")];
    assert_eq!(get(&cache, &only).await.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(origin.asked(), 0);
    get(&cache, &[]).await;
    assert_eq!(text(get(&cache, &only).await).await, "answer 0");
}

/// RFC 9111, section 5.2.1.7.
#[tokio::test(start_paused = true)]
async fn only_if_cached_never_reaches_the_origin_whatever_else_is_said() {
    let origin = validating(MINUTE);
    let cache = cached(&memory().build().unwrap(), &origin);
    let only = [("cache-control", "no-store, only-if-cached")];
    let conditional = [("cache-control", "only-if-cached"), ("if-match", "\"other\"")];
    for fields in [&only[..], &conditional] {
        assert_eq!(get(&cache, fields).await.status(), StatusCode::GATEWAY_TIMEOUT);
    }
    assert_eq!(origin.asked(), 0);
    get(&cache, &[]).await;
    assert_eq!(text(get(&cache, &only).await).await, "answer 0");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_to_be_kept_for_this_request_is_not() {
    let origin = Origin::counting(MINUTE);
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[("cache-control", "no-store")]).await;
    assert!(!is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn an_error_is_not_given_while_there_is_something_better() {
    let origin = Origin::new(async |_, nth| {
        let stale = ("cache-control", "max-age=60, stale-if-error=60");
        Ok(if nth == 0 { page(&[stale], "good") } else { page(&[(":status", "500")], "bad") })
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    pass(61).await;
    let answer = get(&cache, &[]).await;
    assert!(says(&answer, "fwd=stale") && says(&answer, "detail=load-failed"), "{answer:?}");
    assert_eq!(text(answer).await, "good");
    pass(61).await;
    assert_eq!(get(&cache, &[]).await.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test(start_paused = true)]
async fn a_second_error_is_not_kept_and_further_waiters_ask_for_themselves() {
    let origin = Origin::counting(&[(":status", "500")]);
    let cache = cached(&memory().build().unwrap(), &origin);
    let (one, second, third) = tokio::join!(get(&cache, &[]), get(&cache, &[]), get(&cache, &[]));
    assert_eq!(text(one).await, "answer 0");
    assert_eq!([text(second).await, text(third).await], ["answer 1", "answer 2"]);
    assert_eq!(origin.asked(), 3);
    get(&cache, &[]).await;
    assert_eq!(origin.asked(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_stale_response_is_served_while_it_is_revalidated() {
    let origin = Origin::counting(&[("cache-control", "max-age=60, stale-while-revalidate=60")]);
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    pass(61).await;
    let answer = get(&cache, &[]).await;
    assert!(is_hit(&answer) && says(&answer, "detail=revalidating"), "{answer:?}");
    assert_eq!(text(answer).await, "answer 0");
    while origin.asked() < 2 {
        tokio::task::yield_now().await;
    }
    sleep(Duration::from_millis(1)).await;
    assert_eq!(text(get(&cache, &[]).await).await, "answer 1");
}

#[tokio::test(start_paused = true)]
async fn an_error_does_not_replace_what_is_given_meanwhile() {
    let origin = Origin::new(async |_, nth| {
        let stale = ("cache-control", "max-age=60, stale-while-revalidate=60");
        Ok(if nth == 0 { page(&[stale], "good") } else { page(&[(":status", "500")], "bad") })
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    pass(61).await;
    for _ in 0..3 {
        assert_eq!(text(get(&cache, &[]).await).await, "good");
        sleep(Duration::from_secs(2)).await;
    }
    assert!(origin.asked() > 1);
}

#[tokio::test(start_paused = true)]
async fn head_is_answered_by_what_is_kept_of_get() {
    let origin = Origin::counting(MINUTE);
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    let answer = ask(&cache, "HEAD", "http://shop/item", &[]).await;
    assert!(is_hit(&answer));
    assert_eq!(field(&answer, "content-length"), "8");
    assert_eq!(text(answer).await, "");
    assert_eq!(origin.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_part_is_cut_from_what_is_kept() {
    let origin = Origin::counting(MINUTE);
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    let part = get(&cache, &[("range", "bytes=7-")]).await;
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(field(&part, "content-range"), "bytes 7-7/8");
    assert_eq!(text(part).await, "0");
    let none = get(&cache, &[("range", "bytes=8-")]).await;
    assert_eq!(none.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(origin.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_part_has_no_digest_of_the_whole_content() {
    let origin = Origin::counting(&[
        ("cache-control", "max-age=60"),
        ("content-digest", "sha-256=:whole:"),
        ("content-md5", "whole"),
        ("repr-digest", "sha-256=:whole:"),
    ]);
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    let part = get(&cache, &[("range", "bytes=0-2")]).await;
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    let digests = ["content-digest", "content-md5", "repr-digest"].map(|name| field(&part, name));
    assert_eq!(digests, ["", "", "sha-256=:whole:"]);
}

/// `no-cache` is about later responses (RFC 9111, section 5.2.2.4).
#[tokio::test(start_paused = true)]
async fn fields_that_no_cache_names_reach_the_caller_that_loaded_them_and_no_other() {
    for vary in [("x-other", "1"), ("vary", "accept")] {
        let origin = Origin::new(move |request: http::Request<_>, nth| async move {
            let quota = nth.to_string();
            let status = match request.headers().contains_key("if-none-match") {
                true => (":status", "304"),
                false => (":status", "200"),
            };
            let terms = ("cache-control", "max-age=60, no-cache=\"x-quota\"");
            Ok(page(&[status, terms, ("etag", "\"1\""), ("x-quota", &quota), vary], ""))
        });
        let cache = cached(&memory().build().unwrap(), &origin);
        for nth in ["0", "1"] {
            let (first, waiter) = tokio::join!(get(&cache, &[]), get(&cache, &[]));
            assert_eq!(
                (field(&first, "x-quota"), field(&waiter, "x-quota")),
                (nth, ""),
                "{vary:?}"
            );
            assert_eq!(field(&get(&cache, &[]).await, "x-quota"), "", "{vary:?}");
            pass(61).await;
        }
        assert_eq!(origin.asked(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn fields_that_the_program_does_not_store_reach_only_the_caller_that_loaded_them() {
    for terms in [("vary", "accept"), ("x-other", "1"), ("cache-control", "max-age=60, private")] {
        let origin = Origin::new(move |request: http::Request<_>, nth: usize| async move {
            let is_asked = request.headers().contains_key("if-none-match");
            let status = (":status", if is_asked { "304" } else { "200" });
            let (id, lifetime) = (nth.to_string(), ("cache-control", "max-age=60"));
            Ok(page(&[status, lifetime, ("etag", "\"1\""), ("x-request-id", &id), terms], ""))
        });
        let layer = memory().unstored_fields(["X-Request-Id", "server-timing"]).build().unwrap();
        let cache = cached(&layer, &origin);
        for _ in 0..2 {
            let nth = origin.asked().to_string();
            let (first, waiter) = tokio::join!(get(&cache, &[]), get(&cache, &[]));
            assert_eq!(field(&first, "x-request-id"), nth, "{terms:?}");
            assert_ne!(field(&waiter, "x-request-id"), nth, "{terms:?}");
            assert_ne!(field(&get(&cache, &[]).await, "x-request-id"), nth, "{terms:?}");
            pass(61).await;
        }
    }
    let error = memory().unstored_fields(["x request"]).build().unwrap_err().to_string();
    assert!(error.contains("x request"), "{error}");
}

/// RFC 5861, section 3.
#[tokio::test(start_paused = true)]
async fn any_use_of_a_stale_response_starts_its_revalidation() {
    let head = ("HEAD", &[][..]);
    let range = ("GET", &[("range", "bytes=0-1")][..]);
    for (method, fields) in [head, range] {
        let origin =
            Origin::counting(&[("cache-control", "max-age=60, stale-while-revalidate=60")]);
        let cache = cached(&memory().build().unwrap(), &origin);
        get(&cache, &[]).await;
        pass(61).await;
        assert!(says(&ask(&cache, method, "http://shop/item", fields).await, "ttl=-1"));
        sleep(Duration::from_millis(1)).await;
        assert_eq!(text(get(&cache, &[]).await).await, "answer 1", "{method}");
        // The revalidation is that of the whole response, and only one for all such requests.
        assert_eq!((origin.last("range"), origin.asked()), (None, 2), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_in_place_of_an_error_says_what_the_origin_answered() {
    for fields in [&[][..], &[("cookie", "a=b")]] {
        let origin = Origin::new(async |_, nth| {
            let terms = ("cache-control", "max-age=60, stale-if-error=60");
            Ok(page(&[if nth == 0 { terms } else { (":status", "503") }], ""))
        });
        let cache = cached(&memory().build().unwrap(), &origin);
        get(&cache, &[]).await;
        pass(61).await;
        let answer = get(&cache, fields).await;
        assert!(says(&answer, "fwd=stale") && says(&answer, "fwd-status=503"), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_not_stored_says_so() {
    let fields: &[_] = vec![("x-many", "1"); 200].leak();
    let origin = Origin::counting([&[MINUTE[0]], fields].concat().leak());
    let answer = get(&cached(&memory().build().unwrap(), &origin), &[]).await;
    assert!(says(&answer, "detail=not-stored"), "{answer:?}");
}

/// The seconds that `Cache-Status` says.
fn ttl(answer: &crate::origin::Answer) -> u64 {
    let ttl = field(answer, "cache-status").split("; ").find_map(|said| said.strip_prefix("ttl="));
    ttl.expect("a ttl").parse().expect("a number")
}

#[tokio::test]
async fn the_lifetime_in_the_storing_answer_is_the_one_that_is_stored() {
    let (_server, redis) = redis().await;
    for fields in [
        &[("cache-control", "max-age=10000000")][..],
        &[("cache-control", "max-age=10000000"), ("etag", "\"a\"")],
        &[("cache-control", "max-age=10000000"), ("vary", "accept")],
    ] {
        for layer in [
            HttpCacheLayer::builder(MemoryStore::new(10)).jitter(1.0).build().unwrap(),
            HttpCacheLayer::builder(redis.clone()).jitter(1.0).build().unwrap(),
        ] {
            let cache = cached(&layer, &Origin::counting(fields));
            let first = <[_; 2]>::from(tokio::join!(get(&cache, &[]), get(&cache, &[])));
            assert!(first.iter().any(|answer| says(answer, "stored")), "{first:?}");
            let hit = get(&cache, &[]).await;
            assert!(is_hit(&hit), "{hit:?}");
            for answer in &first {
                assert!(ttl(answer).abs_diff(ttl(&hit)) <= 1, "{answer:?} {hit:?}");
            }
            layer.handle().invalidate(&Uri::from_static("http://shop/item")).await.unwrap();
        }
    }
}
