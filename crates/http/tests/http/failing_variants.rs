//! Variants that expire while the origin fails.

use std::time::Duration;

use bellwether::MemoryStore;
use bellwether::store::Store;
use bellwether_http::{HttpCacheLayer, HttpCacheLayerBuilder, KeyedRules, RequestKey};
use bellwether_test::faulty::FaultyStore;
use http::Request;
use tokio::time::sleep;

use crate::origin::{Origin, ask, cached, field, get, is_hit, page, text};

const GERMAN: (&str, &str) = ("accept-language", "de");
const ENGLISH: (&str, &str) = ("accept-language", "en");
const MINUTE: Duration = Duration::from_secs(60);

fn layer(store: impl Store) -> HttpCacheLayerBuilder<KeyedRules> {
    HttpCacheLayer::keyed(store, RequestKey::path()).ttl(MINUTE).jitter(0.0)
}

async fn expire(layer: &HttpCacheLayer<KeyedRules>) {
    let item = RequestKey::path().of(Request::get("/item").body(()).unwrap()).unwrap();
    assert!(layer.handle().expire(&item).await.unwrap());
}

/// An origin that takes this long for a response, and fails from the given one on.
fn failing_from(failing: usize, takes: Duration) -> Origin {
    Origin::new(move |_, nth| async move {
        let status = if nth < failing { "200" } else { "500" };
        if nth >= failing {
            sleep(takes).await;
        }
        Ok(page(&[("vary", "accept-language"), (":status", status)], nth.to_string()))
    })
}

#[tokio::test(start_paused = true)]
async fn an_expiry_leaves_a_variant_in_cooldown_whose_load_has_failed() {
    let origin = failing_from(1, Duration::ZERO);
    let layer = layer(MemoryStore::new(100)).build().unwrap();
    let cache = cached(&layer, &origin);
    get(&cache, &[GERMAN]).await;
    for _ in 0..10 {
        assert_eq!(get(&cache, &[ENGLISH]).await.status(), 500);
    }
    let before = origin.asked();
    expire(&layer).await;
    for _ in 0..10 {
        assert_eq!(get(&cache, &[ENGLISH]).await.status(), 500);
    }
    let loads = origin.asked() - before;
    assert!(loads <= 1, "{loads} loads of a variant in cooldown");
}

/// By real time, as windows are told from a time of day. On a slow machine the variant is only within
/// its `stale-if-error` in the store, too, which gives the same answer.
#[tokio::test]
async fn a_variant_is_served_on_errors_after_its_time_to_be_revalidated() {
    let ms = Duration::from_millis;
    let layer = layer(FaultyStore::new(MemoryStore::new(100)).remote()).ttl(ms(400));
    let layer = layer.stale_while_revalidate(ms(500)).stale_if_error(MINUTE * 60).build().unwrap();
    let cache = cached(&layer, &failing_from(2, ms(100)));
    for language in [GERMAN, ENGLISH] {
        get(&cache, &[language]).await;
    }
    expire(&layer).await;
    sleep(ms(520)).await;
    let answer = get(&cache, &[ENGLISH]).await;
    let said = field(&answer, "cache-status").to_owned();
    assert_eq!((answer.status().as_u16(), text(answer).await.as_str()), (200, "1"), "{said}");
}

/// By real time, as above. On a slow machine the store has nothing to serve, either.
#[tokio::test]
async fn a_request_past_the_cache_gets_no_variant_after_its_time_to_be_revalidated() {
    let ms = Duration::from_millis;
    let layer =
        layer(MemoryStore::new(100)).ttl(ms(400)).stale_while_revalidate(ms(500)).build().unwrap();
    let cache = cached(&layer, &failing_from(usize::MAX, ms(0)));
    for language in [GERMAN, ENGLISH] {
        get(&cache, &[language]).await;
    }
    expire(&layer).await;
    sleep(ms(520)).await;
    let answer = ask(&cache, "HEAD", "http://shop/item", &[ENGLISH]).await;
    assert!(!is_hit(&answer), "{}", field(&answer, "cache-status"));
}
