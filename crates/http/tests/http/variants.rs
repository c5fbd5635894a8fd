//! Variants that are requested once do not displace those that are requested often.

use std::time::Duration;

use bellwether::MemoryStore;
use bellwether_http::HttpCache;
use http::Request;

use crate::origin::{Origin, cached, get, is_hit, memory, page, pass, plain};

type Cache = HttpCache<Origin>;

fn polyglot(says: &'static str) -> Origin {
    Origin::new(move |_: Request<_>, _| async move {
        Ok(page(&[("cache-control", says), ("vary", "accept-language")], ""))
    })
}

async fn is_kept(cache: &Cache, language: &str) -> bool {
    is_hit(&get(cache, &[("accept-language", language)]).await)
}

/// Requests for junk variants, whose numbers repeat.
async fn junk(cache: &Cache, numbers: std::ops::Range<usize>) {
    for number in numbers {
        is_kept(cache, &format!("x-{number}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_real_variant_gets_in_though_the_table_is_full() {
    let cache = cached(&memory().build().unwrap(), &polyglot("max-age=3600"));
    junk(&cache, 0..1_000).await;
    assert!(!is_kept(&cache, "de").await);
    assert!(is_kept(&cache, "de").await);
}

#[tokio::test(start_paused = true)]
async fn a_variant_that_is_used_stays_whatever_junk_comes() {
    let cache = cached(&memory().build().unwrap(), &polyglot("max-age=3600"));
    is_kept(&cache, "de").await;
    for round in 0..100 {
        assert!(is_kept(&cache, "de").await, "{round}");
        junk(&cache, round * 300..(round + 1) * 300).await;
        pass(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_variant_that_comes_while_junk_does_is_kept_from_its_third_request_on() {
    let cache = cached(&memory().build().unwrap(), &polyglot("max-age=3600"));
    junk(&cache, 0..100).await;
    let mut hits = 0;
    for round in 1..=20 {
        hits += usize::from(is_kept(&cache, "de").await);
        junk(&cache, round * 300..(round + 1) * 300).await;
    }
    assert_eq!(hits, 18);
}

/// Each junk variant is requested as often as the real one, so all have an equal share.
#[tokio::test(start_paused = true)]
async fn junk_that_comes_round_leaves_a_variant_some_hits() {
    let cache = cached(&memory().build().unwrap(), &polyglot("max-age=3600"));
    let mut hits = 0;
    for _ in 0..200 {
        hits += usize::from(is_kept(&cache, "de").await);
        junk(&cache, 0..150).await;
        pass(1).await;
    }
    assert!(hits > 0, "{hits} of 200");
}

/// The uses of old variants decay, so half a minute is enough.
#[tokio::test(start_paused = true)]
async fn junk_that_was_used_once_upon_a_time_makes_room() {
    let cache = cached(&memory().build().unwrap(), &polyglot("max-age=86400"));
    for _ in 0..100 {
        junk(&cache, 0..64).await;
    }
    pass(600).await;
    for language in ["de", "en", "fr"] {
        is_kept(&cache, language).await;
    }
    let mut hits = 0;
    for _ in 0..10 {
        for language in ["de", "en", "fr"] {
            hits += usize::from(is_kept(&cache, language).await);
        }
    }
    assert_eq!(hits, 30);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_64_variants_of_a_target_are_kept() {
    let store = MemoryStore::new(10_000);
    let cache = cached(&plain(store.clone()).build().unwrap(), &polyglot("max-age=3600"));
    for _ in 0..3 {
        junk(&cache, 0..500).await;
    }
    assert!(store.len() <= 65, "{} entries: one says how to find the others", store.len());
}

#[tokio::test(start_paused = true)]
async fn stale_variants_make_room_first() {
    let origin = Origin::new(async |request: Request<_>, _| {
        let is_short = request.headers()["accept-language"].as_bytes().starts_with(b"short");
        let says = if is_short { "max-age=5" } else { "max-age=3600" };
        Ok(page(&[("cache-control", says), ("vary", "accept-language")], ""))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    for number in 0..32 {
        is_kept(&cache, &format!("short-{number}")).await;
        is_kept(&cache, &format!("short-{number}")).await;
    }
    junk(&cache, 0..32).await;
    tokio::time::advance(Duration::from_secs(10)).await;
    junk(&cache, 100..132).await;
    for number in (0..32).chain(100..132) {
        assert!(is_kept(&cache, &format!("x-{number}")).await, "{number}");
    }
}
