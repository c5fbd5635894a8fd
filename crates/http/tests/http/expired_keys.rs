//! The variants of a key of the program that expires.

use std::future::ready;
use std::time::Duration;

use bellwether::store::Store;
use bellwether::{Key, MemoryStore};
use bellwether_http::{HttpCache, HttpCacheLayer, HttpCacheLayerBuilder, KeyedRules, RequestKey};
use bellwether_redis::RedisOptions;
use bellwether_test::faulty::{FaultyStore, Operation};
use bellwether_testkit::servers::RedisServer;
use bellwether_testkit::wait::PATIENCE;
use futures_util::FutureExt;
use futures_util::future::join_all;
use http::Request;
use tokio::join;
use tokio::time::{sleep, timeout};

use crate::origin::{Answer, Origin, ask, cached, field, get, is_hit, page, says, text};

const MINUTE: Duration = Duration::from_secs(60);
const GERMAN: (&str, &str) = ("accept-language", "de");
const ENGLISH: (&str, &str) = ("accept-language", "en");

fn key(path: &'static str) -> Key {
    RequestKey::path().of(Request::get(path).body(()).unwrap()).unwrap()
}

fn item() -> Key {
    key("/item")
}

fn without_window(store: impl Store) -> HttpCacheLayerBuilder<KeyedRules> {
    HttpCacheLayer::keyed(store, RequestKey::path()).ttl(MINUTE).jitter(0.0)
}

fn layer(store: impl Store) -> HttpCacheLayerBuilder<KeyedRules> {
    without_window(store).stale_while_revalidate(MINUTE)
}

/// An origin whose responses vary, and fail from the given one on.
fn failing_from(failing: usize) -> Origin {
    Origin::new(move |_, nth| {
        let status = if nth < failing { "200" } else { "500" };
        ready(Ok(page(&[("vary", "accept-language"), (":status", status)], nth.to_string())))
    })
}

fn varying() -> Origin {
    failing_from(usize::MAX)
}

/// A cache that has a German and an English variant: the texts are 0 and 1.
async fn with_variants(layer: &HttpCacheLayer<KeyedRules>, origin: &Origin) -> HttpCache<Origin> {
    let cache = cached(layer, origin);
    for language in [GERMAN, ENGLISH] {
        get(&cache, &[language]).await;
        assert!(is_hit(&get(&cache, &[language]).await), "{language:?}");
    }
    cache
}

fn is_stale(answer: &Answer) -> bool {
    says(answer, "detail=revalidating")
}

async fn is_served_stale(answer: Answer, content: &str) {
    assert!(is_stale(&answer), "{}", field(&answer, "cache-status"));
    assert_eq!(text(answer).await, content);
}

async fn in_the_background() {
    sleep(Duration::from_millis(1)).await;
}

/// A redirect is shared, and not stored.
#[tokio::test(start_paused = true)]
async fn a_request_after_an_expiry_does_not_share_a_redirect_from_before_it() {
    let origin = Origin::new(async |_, nth| {
        sleep(Duration::from_secs(1)).await;
        let status = if nth == 0 { "200" } else { "302" };
        Ok(page(&[("vary", "accept-language"), (":status", status)], nth.to_string()))
    });
    let layer = without_window(MemoryStore::new(100)).build().unwrap();
    let cache = cached(&layer, &origin);
    get(&cache, &[GERMAN]).await;
    let handle = layer.handle();
    let expiry_and_requests = async {
        sleep(Duration::from_millis(500)).await;
        handle.expire(&item()).await.unwrap();
        join!(get(&cache, &[ENGLISH]), get(&cache, &[ENGLISH]))
    };
    let (before, (one, other)) = join!(get(&cache, &[ENGLISH]), expiry_and_requests);
    assert_eq!(text(before).await, "1");
    assert_eq!((text(one).await, text(other).await), ("2".to_owned(), "2".to_owned()));
    assert_eq!(origin.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn each_variant_of_a_key_is_served_while_one_load_replaces_it() {
    let origin = varying();
    let layer = layer(MemoryStore::new(100)).build().unwrap();
    let cache = with_variants(&layer, &origin).await;
    assert!(layer.handle().expire(&item()).await.unwrap());
    for (language, old, new) in [(GERMAN, "0", "2"), (ENGLISH, "1", "3")] {
        let fields = [language];
        for answer in join_all((0..50).map(|_| get(&cache, &fields))).await {
            is_served_stale(answer, old).await;
        }
        in_the_background().await;
        let answer = get(&cache, &[language]).await;
        assert!(is_hit(&answer) && !is_stale(&answer));
        assert_eq!(text(answer).await, new);
    }
    assert_eq!(origin.asked(), 4);
}

#[tokio::test(start_paused = true)]
async fn many_keys_expire_at_once_with_their_variants() {
    let layer = layer(MemoryStore::new(100)).build().unwrap();
    let cache = with_variants(&layer, &varying()).await;
    ask(&cache, "GET", "/other", &[GERMAN]).await;
    let keys = ["/item", "/other", "/missing"].map(key);
    assert_eq!(layer.handle().expire_many(keys).await.unwrap(), 2);
    is_served_stale(get(&cache, &[ENGLISH]).await, "1").await;
    is_served_stale(ask(&cache, "GET", "/other", &[GERMAN]).await, "2").await;
}

#[tokio::test(start_paused = true)]
async fn a_variant_of_a_key_is_served_if_its_load_fails_within_the_stale_window() {
    let layer = without_window(MemoryStore::new(100)).stale_if_error(MINUTE).build().unwrap();
    let cache = with_variants(&layer, &failing_from(2)).await;
    layer.handle().expire(&item()).await.unwrap();
    let answer = get(&cache, &[ENGLISH]).await;
    assert_eq!((answer.status(), text(answer).await), (http::StatusCode::OK, "1".to_owned()));
}

/// By real time, as windows are told from a time of day. A slow machine sees no variant at all.
#[tokio::test]
async fn the_windows_of_a_variant_begin_with_the_expiry_even_if_its_ttl_has_ended_since() {
    let ms = Duration::from_millis;
    let layer = without_window(MemoryStore::new(100))
        .ttl(ms(300))
        .stale_while_revalidate(ms(600))
        .build()
        .unwrap();
    let cache = cached(&layer, &varying());
    for language in [GERMAN, ENGLISH] {
        get(&cache, &[language]).await;
    }
    layer.handle().expire(&item()).await.unwrap();
    sleep(ms(700)).await;
    let answer = get(&cache, &[ENGLISH]).await;
    let said = field(&answer, "cache-status").to_owned();
    assert_ne!(text(answer).await, "1", "{said}");
}

#[tokio::test(start_paused = true)]
async fn an_expiry_of_a_key_whose_caller_leaves_goes_on() {
    let store = FaultyStore::new(MemoryStore::new(100));
    let layer = layer(store.clone()).build().unwrap();
    let cache = with_variants(&layer, &varying()).await;
    let held = store.on(Operation::ExpireTag).hold();
    let handle = layer.handle();
    let key = item();
    let mut expiry = Box::pin(handle.expire(&key));
    assert!(expiry.as_mut().now_or_never().is_none());
    held.reached().await;
    drop(expiry);
    held.open();
    in_the_background().await;
    is_served_stale(get(&cache, &[ENGLISH]).await, "1").await;
}

#[tokio::test]
async fn an_expiry_of_a_key_while_redis_is_down_is_kept_and_repeated() {
    let server = RedisServer::start();
    let options = RedisOptions::new(&server.url(), "test").unwrap();
    let store = options.timeout(Duration::from_secs(3)).connect().await.unwrap();
    let layer = layer(store.clone()).build().unwrap();
    let cache = with_variants(&layer, &varying()).await;
    server.stop();
    let error = layer.handle().expire(&item()).await.unwrap_err();
    assert!(error.is_pending(), "{error}");
    server.resume();
    while store.stats().replay.pending > 0 {
        is_new_or_stale(get(&cache, &[ENGLISH]).await).await;
        sleep(Duration::from_millis(20)).await;
    }
    is_new_or_stale(get(&cache, &[ENGLISH]).await).await;
}

#[tokio::test]
async fn an_expiry_of_a_key_that_a_restart_lost_is_re_asserted_before_a_read() {
    let mut server = RedisServer::start();
    let options = RedisOptions::new(&server.url(), "test").unwrap().reassert_window(MINUTE * 10);
    let store = options.timeout(Duration::from_secs(30)).connect().await.unwrap();
    let layer = layer(store.clone()).build().unwrap();
    let cache = with_variants(&layer, &varying()).await;
    server.command(&["SAVE"]);
    assert!(layer.handle().expire(&item()).await.unwrap());
    server.restart();
    let is_repeated = async {
        while store.stats().replay.reasserted == 0 || store.stats().replay.pending > 0 {
            is_new_or_stale(get(&cache, &[ENGLISH]).await).await;
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, is_repeated).await.expect("it is repeated");
    is_new_or_stale(get(&cache, &[ENGLISH]).await).await;
}

async fn is_new_or_stale(answer: Answer) {
    let (is_stale, said) = (is_stale(&answer), field(&answer, "cache-status").to_owned());
    let content = text(answer).await;
    assert!(is_stale || content != "1", "{content}: {said}");
}
