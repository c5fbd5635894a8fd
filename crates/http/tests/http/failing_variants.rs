//! Variants that expire while the origin fails.

use std::time::Duration;

use bellwether::MemoryStore;
use bellwether::store::Store;
use bellwether_http::{HttpCacheLayer, KeyedRules, RequestKey};
use http::Uri;
use tokio::time::sleep;

use crate::origin::{Origin, cached, get, page};

const GERMAN: (&str, &str) = ("accept-language", "de");
const ENGLISH: (&str, &str) = ("accept-language", "en");
const MINUTE: Duration = Duration::from_secs(60);

fn layer(store: impl Store) -> HttpCacheLayer<KeyedRules> {
    HttpCacheLayer::keyed(store, RequestKey::path()).ttl(MINUTE).jitter(0.0).unwrap()
}

async fn expire(layer: &HttpCacheLayer<KeyedRules>) {
    let item = RequestKey::path().at(&Uri::from_static("/item")).unwrap().key();
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
    let layer = layer(MemoryStore::new(100));
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
