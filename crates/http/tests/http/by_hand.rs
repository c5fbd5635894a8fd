//! What a program does with a handle.

use std::time::Duration;

use bellwether_http::{HttpCache, HttpCacheLayer, HttpHandle};
use bellwether_redis::RedisOptions;
use bellwether_testkit::servers::RedisServer;
use futures_util::future::join_all;
use http::Uri;

use crate::origin::{Origin, ask, cached, get, is_hit, memory, pass, plain, says, text};

const WINDOW: (&str, &str) = ("echo-cache-control", "max-age=60, stale-while-revalidate=60");

fn uri() -> Uri {
    Uri::from_static("http://shop/item")
}

fn shop(layer: &HttpCacheLayer) -> HttpCache<Origin> {
    cached(layer, &Origin::echoing())
}

#[tokio::test(start_paused = true)]
async fn an_expired_response_is_served_while_it_is_loaded_again() {
    let layer = memory().build().unwrap();
    let cache = shop(&layer);
    get(&cache, &[WINDOW]).await;
    assert!(layer.handle().expire(&uri()).await.unwrap());
    let answer = get(&cache, &[WINDOW]).await;
    assert!(says(&answer, "detail=revalidating"));
    assert_eq!(text(answer).await, "0");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(text(get(&cache, &[WINDOW]).await).await, "1");
}

#[tokio::test(start_paused = true)]
async fn an_expiry_says_whether_there_was_a_response() {
    let layer = memory().build().unwrap();
    assert!(!layer.handle().expire(&uri()).await.unwrap());
    get(&shop(&layer), &[]).await;
    assert!(layer.handle().expire(&Uri::from_static("https://shop:443/item")).await.unwrap());
    assert!(!layer.handle().expire(&Uri::from_static("http://a@shop/item")).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn many_uris_are_invalidated_at_once_and_counted() {
    let layer = memory().build().unwrap();
    let cache = shop(&layer);
    let uris: Vec<_> = (0..300).map(|nth| format!("http://shop/item/{nth}")).collect();
    for uri in &uris {
        ask(&cache, "GET", uri, &[]).await;
    }
    let named = uris.iter().skip(1).cloned().chain(["/other".to_owned()]);
    let named: Vec<Uri> = named.map(|uri| uri.parse().unwrap()).collect();
    assert_eq!(layer.handle().invalidate_many(named).await.unwrap(), 299);
    assert!(is_hit(&ask(&cache, "GET", &uris[0], &[]).await));
    assert!(!is_hit(&ask(&cache, "GET", &uris[299], &[]).await));
}

#[tokio::test(start_paused = true)]
async fn a_group_that_expires_over_a_time_is_stale_when_that_has_passed() {
    let layer = memory().build().unwrap();
    let cache = shop(&layer);
    let fields = [
        ("echo-cache-groups", "\"a\""),
        ("echo-cache-control", "max-age=600, stale-while-revalidate=600"),
    ];
    get(&cache, &fields).await;
    let spread = Duration::from_secs(60);
    layer.handle().expire_group(&uri(), "a", spread).await.unwrap();
    pass(61).await;
    assert!(says(&get(&cache, &fields).await, "detail=revalidating"));
}

#[tokio::test(start_paused = true)]
async fn everything_of_a_clearable_layer_is_removed_at_once() {
    let layer = memory().clearable().build().unwrap();
    let cache = shop(&layer);
    let varies = [("echo-vary", "accept-language"), ("accept-language", "de")];
    let asked = async |uri, fields: &[_]| is_hit(&ask(&cache, "GET", uri, fields).await);
    for (uri, fields) in [("http://shop/a", &varies[..]), ("https://other/b", &[])] {
        assert!(!asked(uri, fields).await && asked(uri, fields).await, "{uri}");
    }
    layer.handle().clear().await.unwrap();
    assert!(!asked("http://shop/a", &varies).await);
    assert!(!asked("https://other/b", &[]).await);
}

/// A handle over a store that keeps this many invalidations.
async fn keeping(most: usize, server: &RedisServer) -> HttpHandle {
    let options = RedisOptions::new(&server.url(), "test").unwrap().pending_invalidations(most);
    plain(options.connect().await.unwrap()).build().unwrap().handle()
}

/// A URI has two keys, and a group has two tags or three.
#[tokio::test]
async fn the_error_of_a_uri_or_of_a_group_is_kept_only_if_all_that_failed_are() {
    for (most, is_kept) in [(1, false), (12, true)] {
        let mut server = RedisServer::start();
        let handles = (0..4).map(|_| keeping(most, &server));
        let handles = join_all(handles).await;
        server.kill();
        let errors = [
            handles[0].invalidate_group(&uri(), "a").await.unwrap_err(),
            handles[1].expire_group(&uri(), "a", Duration::ZERO).await.unwrap_err(),
            handles[2].invalidate(&uri()).await.unwrap_err(),
            handles[3].expire(&uri()).await.unwrap_err(),
        ];
        assert_eq!(errors.map(|error| error.is_pending()), [is_kept; 4]);
    }
}
