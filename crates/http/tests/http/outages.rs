//! What requests of all kinds get from a stored response while the origin fails (RFC 5861).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bellwether::MemoryStore;
use bellwether::store::{OutageStore, StoreErrorKind};
use bellwether_http::HttpCache;
use bellwether_redis::RedisOptions;
use bellwether_test::faulty::FaultyStore;
use bellwether_testkit::servers::{RedisServer, Reply};
use http::StatusCode;
use tokio::time::sleep;

use crate::origin::{
    Answer, Origin, ask, cached, field, get, is_hit, memory, page, pass, plain, redis, says, text,
};

type Fields = &'static [(&'static str, &'static str)];

/// Answers once with these fields. Then it fails: by an answer, or without one.
fn failing(fields: Fields, by_answer: bool) -> Origin {
    Origin::new(move |_, nth| async move {
        match nth {
            0 => Ok(page(fields, "the page")),
            _ if by_answer => Ok(page(&[(":status", "503")], "an error")),
            _ => Err("refused".into()),
        }
    })
}

/// Requests that are not for the whole content.
const REQUESTS: [(&str, Fields); 5] = [
    ("HEAD", &[]),
    ("HEAD", &[("cache-control", "no-cache")]),
    ("GET", &[("range", "bytes=4-")]),
    ("GET", &[("range", "bytes=4-"), ("cache-control", "max-age=0")]),
    ("GET", &[("range", "x=1")]),
];

async fn asked(cache: &HttpCache<Origin>, (method, fields): (&str, Fields)) -> Answer {
    ask(cache, method, "http://shop/item", fields).await
}

const STALE: (&str, &str) = ("cache-control", "max-age=60, stale-if-error=60");

#[tokio::test(start_paused = true)]
async fn a_head_and_a_range_get_the_stale_response_in_an_outage() {
    for (fields, by_answer) in
        [(&[STALE][..], true), (&[STALE], false), (&[STALE, ("vary", "accept")], true)]
    {
        let cache = cached(&memory().build().unwrap(), &failing(fields, by_answer));
        get(&cache, &[]).await;
        pass(90).await;
        for request in REQUESTS {
            let answer = asked(&cache, request).await;
            let whole = request.0 == "HEAD" || request.1[0].1 == "x=1";
            let status = if whole { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
            assert_eq!(answer.status(), status, "{request:?} {answer:?}");
            assert!(says(&answer, "detail=load-failed"), "{request:?} {answer:?}");
            assert!(says(&answer, "fwd=stale") && says(&answer, "ttl=-30"), "{answer:?}");
            // The first one loads the whole, and the second one finds the cooldown.
            let is_asked = by_answer && request == REQUESTS[0];
            assert!(says(&answer, "fwd-status=503") || !is_asked, "{answer:?}");
            let content = match request.0 {
                "HEAD" => "",
                _ if whole => "the page",
                _ => "page",
            };
            assert_eq!(text(answer).await, content, "{request:?}");
        }
        pass(31).await;
        for request in REQUESTS {
            assert!(asked(&cache, request).await.status().is_server_error(), "{request:?}");
        }
    }
}

/// `no-cache` of the request gives way.
#[tokio::test(start_paused = true)]
async fn a_forced_head_or_range_gets_the_fresh_response_in_an_outage() {
    let cache = cached(&memory().build().unwrap(), &failing(&[STALE], true));
    get(&cache, &[]).await;
    for request in [REQUESTS[1], REQUESTS[3]] {
        let answer = asked(&cache, request).await;
        assert!(answer.status().is_success() && says(&answer, "fwd=request"), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_for_disconnections_is_for_heads_and_ranges_too() {
    const PLAIN: Fields = &[("cache-control", "max-age=60")];
    for (by_answer, is_served) in [(false, true), (true, false)] {
        let layer = memory().stale_if_disconnected(Duration::from_secs(60));
        let cache = cached(&layer.build().unwrap(), &failing(PLAIN, by_answer));
        get(&cache, &[]).await;
        pass(90).await;
        for request in REQUESTS {
            let answer = asked(&cache, request).await;
            assert_eq!(answer.status().is_success(), is_served, "{request:?} {answer:?}");
        }
    }
}

/// Two responses for one client only have ended the coalescing of the target.
#[tokio::test(start_paused = true)]
async fn a_target_whose_requests_are_not_coalesced_keeps_its_stale_answers() {
    let origin = Origin::new(async |request: http::Request<_>, nth| {
        Ok(match request.headers().contains_key("cache-control") {
            true => page(&[("cache-control", "private")], "for one"),
            false if nth == 0 => page(&[STALE], "the page"),
            false => page(&[(":status", "503")], "an error"),
        })
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    pass(90).await;
    for _ in 0..2 {
        assert_eq!(text(get(&cache, &[("cache-control", "no-cache")]).await).await, "for one");
    }
    let answer = get(&cache, &[]).await;
    assert!(says(&answer, "detail=load-failed") && !is_hit(&answer), "{answer:?}");
    assert_eq!(text(answer).await, "the page");
}

#[tokio::test(start_paused = true)]
async fn an_error_that_states_a_lifetime_replaces_no_good_page() {
    const TERMS: [&str; 2] =
        ["max-age=60, stale-if-error=600", "max-age=60, stale-while-revalidate=600"];
    for (terms, is_reload) in TERMS.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let origin = Origin::new(move |_, nth| async move {
            let terms = ("cache-control", terms);
            Ok(match nth {
                0 => page(&[terms], "the page"),
                _ => page(&[terms, (":status", "503")], "an error"),
            })
        });
        let cache = cached(&memory().build().unwrap(), &origin);
        get(&cache, &[]).await;
        if is_reload {
            get(&cache, &[("cache-control", "no-cache")]).await;
            assert!(is_hit(&get(&cache, &[]).await), "{terms}");
        }
        pass(90).await;
        for _ in 0..3 {
            let answer = get(&cache, &[]).await;
            assert_eq!(text(answer).await, "the page", "{terms}");
            sleep(Duration::from_secs(20)).await;
        }
        pass(700).await;
        assert_eq!(text(get(&cache, &[]).await).await, "an error", "{terms}");
        assert!(is_hit(&get(&cache, &[]).await), "without a page, it is stored as it says");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_states_a_lifetime_replaces_no_good_variant() {
    let origin = Origin::new(async |_, nth| {
        let fields = [STALE, ("vary", if nth < 2 { "accept" } else { "accept, origin" })];
        Ok(match nth {
            0 => page(&fields, "the page"),
            _ => page(&[&fields[..], &[(":status", "500")]].concat(), "an error"),
        })
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    pass(61).await;
    for _ in 0..3 {
        let answer = get(&cache, &[]).await;
        assert_eq!(field(&answer, "vary"), "accept");
        assert_eq!(text(answer).await, "the page");
        pass(5).await;
    }
}

/// The variants of a target are found by its index, whose life began with the first of them.
#[tokio::test(start_paused = true)]
async fn stale_variants_are_found_as_long_as_they_are_stored() {
    const VARIANT: Fields = &[
        ("cache-control", "max-age=60, stale-if-error=86400"),
        ("vary", "accept"),
        ("etag", "\"1\""),
    ];
    for method in ["GET", "HEAD"] {
        let origin = Origin::new(async |_, nth| match nth {
            0 => Ok(page(VARIANT, "first")),
            1..=3 => Ok(page(&VARIANT[..2], "later")),
            _ => Err("refused".into()),
        });
        let cache = cached(&memory().build().unwrap(), &origin);
        get(&cache, &[]).await;
        for _ in 0..3 {
            pass(86_000).await;
            ask(&cache, method, "http://shop/item", &[]).await;
        }
        for _ in 0..3 {
            pass(25_000).await;
            let answer = get(&cache, &[]).await;
            assert!(says(&answer, "detail=load-failed"), "{answer:?}");
            assert_eq!(text(answer).await, "later");
        }
        pass(25_000).await;
        assert_eq!(get(&cache, &[]).await.status(), StatusCode::BAD_GATEWAY);
    }
}

#[tokio::test]
async fn an_index_in_redis_is_stored_for_as_long_as_each_variant() {
    let (server, store) = redis().await;
    let origin = Origin::new(async |_, nth| {
        let terms = if nth == 0 { "max-age=60" } else { "max-age=864000" };
        Ok(page(&[("cache-control", terms), ("vary", "accept")], ""))
    });
    let cache = cached(&plain(store).build().unwrap(), &origin);
    for accept in ["a", "b", "b"] {
        get(&cache, &[("accept", accept)]).await;
    }
    let Reply::Array(names) = server.command(&["KEYS", "*"]) else { panic!("no list of names") };
    let names = names.into_iter().map(Reply::text).filter(|name| !name.contains(":~tag:"));
    let live_for = |name: String| match server.command(&["TTL", &name]) {
        Reply::Integer(left) => left,
        _ => panic!("no life"),
    };
    let lives = names.map(live_for).filter(|left| *left > 860_000).count();
    assert_eq!(lives, 2, "the variant and the index");
}

/// An origin of pages with variants, until it fails.
fn varying() -> (Origin, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let has_failed = Arc::clone(&fails);
    let origin = Origin::new(move |_, nth| {
        let has_failed = has_failed.load(Ordering::Relaxed);
        async move {
            let terms = ("cache-control", "max-age=60, stale-if-error=3600");
            match has_failed {
                true => Err("refused".into()),
                false => Ok(page(&[terms, ("vary", "accept-language")], nth.to_string())),
            }
        }
    });
    (origin, fails)
}

const LANGUAGES: [Fields; 2] = [&[("accept-language", "de")], &[("accept-language", "en")]];

/// An index that ended with the time for which a process keeps answers took the stale variants with it.
#[tokio::test(start_paused = true)]
async fn without_the_store_a_variant_is_loaded_once_per_outage_ttl_and_stale_after_that() {
    let (origin, fails) = varying();
    let primary = FaultyStore::new(MemoryStore::new(100)).remote();
    let store = OutageStore::new(primary.clone(), Duration::from_secs(1));
    let cache = cached(&plain(store).build().unwrap(), &origin);
    primary.on_any().fail(StoreErrorKind::Unreachable);
    for _ in 0..95 {
        for language in LANGUAGES {
            assert!(get(&cache, language).await.status().is_success());
        }
        sleep(Duration::from_millis(100)).await;
    }
    let loads = origin.asked();
    assert!((20..=22).contains(&loads), "{loads} loads of two variants in ten seconds");
    fails.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(600)).await;
    for language in LANGUAGES {
        let answer = get(&cache, language).await;
        assert!(says(&answer, "detail=load-failed"), "{answer:?}");
    }
}

#[tokio::test]
async fn near_copies_of_variants_outlive_redis_and_the_origin() {
    let (origin, fails) = varying();
    let mut server = RedisServer::start();
    let options = RedisOptions::new(&server.url(), "test").unwrap().near(1 << 20);
    let cache = cached(&plain(options.connect().await.unwrap()).build().unwrap(), &origin);
    for _ in 0..10 {
        for language in LANGUAGES {
            get(&cache, language).await;
        }
        sleep(Duration::from_millis(10)).await;
    }
    fails.store(true, Ordering::Relaxed);
    server.kill();
    for _ in 0..15 {
        for language in LANGUAGES {
            let answer = get(&cache, language).await;
            assert!(answer.status().is_success(), "{answer:?}");
        }
        sleep(Duration::from_millis(100)).await;
    }
}
