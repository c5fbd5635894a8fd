//! Surrogate keys: names in a field that the program chooses.

use std::time::Duration;

use bellwether::MemoryStore;
use bellwether_http::{HttpCache, HttpCacheLayer, HttpCacheLayerBuilder, HttpHandle, RequestKey};

use crate::origin::{Origin, ask, cached, field, get, is_hit, memory};

const KEYS: (&str, &str) = ("echo-surrogate-key", "shelf-7 catalog");

fn layer() -> HttpCacheLayerBuilder {
    memory().surrogate_keys("Surrogate-Key")
}

async fn hits(cache: &HttpCache<Origin>, uri: &str, fields: &[(&str, &str)]) -> bool {
    is_hit(&ask(cache, "GET", uri, fields).await)
}

#[tokio::test(start_paused = true)]
async fn a_surrogate_key_removes_the_responses_that_have_it_in_all_origins() {
    let layer = layer().build().unwrap();
    let cache = cached(&layer, &Origin::echoing());
    let [one, other] = ["http://shop/item", "https://elsewhere/item"];
    for uri in [one, other] {
        assert!(!hits(&cache, uri, &[KEYS]).await && hits(&cache, uri, &[KEYS]).await);
    }
    layer.handle().invalidate_tag("shelf-8").await.unwrap();
    assert!(hits(&cache, one, &[KEYS]).await && hits(&cache, other, &[KEYS]).await);
    layer.handle().invalidate_tag("catalog").await.unwrap();
    assert!(!hits(&cache, one, &[KEYS]).await && !hits(&cache, other, &[KEYS]).await);
}

#[tokio::test(start_paused = true)]
async fn keys_may_be_in_any_field_and_between_commas() {
    let layer = memory().surrogate_keys("cache-tag").build().unwrap();
    let cache = cached(&layer, &Origin::echoing());
    let fields = [("echo-cache-tag", "a,b , shelf-7")];
    for key in ["a", "b", "shelf-7"] {
        get(&cache, &fields).await;
        layer.handle().invalidate_tag(key).await.unwrap();
        assert!(!is_hit(&get(&cache, &fields).await), "{key}");
    }
}

/// Loads, hits, responses that pass through, and responses to other methods.
#[tokio::test(start_paused = true)]
async fn clients_do_not_get_the_field_with_the_keys() {
    let cache = cached(&layer().build().unwrap(), &Origin::echoing());
    for (method, fields) in [
        ("GET", &[KEYS][..]),
        ("GET", &[KEYS]),
        ("HEAD", &[KEYS]),
        ("GET", &[KEYS, ("echo-cache-control", "private"), ("cache-control", "no-cache")]),
        ("GET", &[KEYS, ("range", "bytes=0-0")]),
        ("POST", &[KEYS]),
        ("OPTIONS", &[KEYS]),
    ] {
        let answer = ask(&cache, method, "http://shop/item", fields).await;
        assert_eq!(field(&answer, "surrogate-key"), "", "{method} {fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cdn_in_front_of_the_layer_gets_the_field_if_it_is_forwarded() {
    let cache = cached(&layer().forwarding_surrogate_keys().build().unwrap(), &Origin::echoing());
    for _ in 0..2 {
        assert_eq!(field(&get(&cache, &[KEYS]).await, "surrogate-key"), KEYS.1);
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_option_the_field_is_one_like_any_other() {
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &Origin::echoing());
    assert_eq!(field(&get(&cache, &[KEYS]).await, "surrogate-key"), KEYS.1);
    layer.handle().invalidate_tag("shelf-7").await.unwrap();
    assert!(is_hit(&get(&cache, &[KEYS]).await));
}

#[tokio::test(start_paused = true)]
async fn a_response_with_more_keys_and_groups_than_tags_is_not_stored() {
    let cache = cached(&layer().build().unwrap(), &Origin::echoing());
    let keys: Vec<_> = (0..32).map(|nth| nth.to_string()).collect();
    let keys = ("echo-surrogate-key", keys.join(" "));
    let keys = (keys.0, keys.1.as_str());
    get(&cache, &[keys, ("echo-cache-groups", "\"0\"")]).await;
    assert!(!is_hit(&get(&cache, &[keys]).await));
    assert!(is_hit(&get(&cache, &[keys]).await));
}

#[tokio::test(start_paused = true)]
async fn a_surrogate_key_removes_what_is_stored_under_keys_of_the_program() {
    let layer = HttpCacheLayer::keyed(MemoryStore::new(100), RequestKey::path());
    let layer = layer.ttl(Duration::from_secs(60)).surrogate_keys("surrogate-key").build().unwrap();
    let cache = cached(&layer, &Origin::echoing());
    get(&cache, &[KEYS]).await;
    layer.handle().invalidate_tag(&HttpHandle::surrogate_tag("shelf-7")).await.unwrap();
    assert!(!is_hit(&get(&cache, &[KEYS]).await));
}

#[test]
fn a_field_that_cannot_hold_keys_is_refused_by_its_name() {
    for name in ["", "surrogate key", "Cache-Groups", "cache-group-invalidation"] {
        let error = memory().surrogate_keys(name).build().unwrap_err();
        assert!(error.to_string().contains(&format!("{name:?}")), "{error}");
    }
}
