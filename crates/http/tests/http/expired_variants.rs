//! The variants of a URI that expires.

use std::time::Duration;

use bellwether::MemoryStore;
use bellwether::store::{OutageStore, StoreErrorKind};
use bellwether_http::{HttpCache, HttpCacheLayer};
use bellwether_test::faulty::{FaultyStore, Operation};
use futures_util::future::join_all;
use http::{Request, Uri};
use tokio::time::sleep;

use crate::origin::{
    Answer, Origin, ask, cached, field, get, is_hit, memory, page, patient_redis, plain, says, text,
};

type Fields<'a> = &'a [(&'a str, &'a str)];

pub(crate) const VARY: (&str, &str) = ("echo-vary", "accept-language");
pub(crate) const WINDOW: (&str, &str) =
    ("echo-cache-control", "max-age=60, stale-while-revalidate=60");
pub(crate) const GERMAN: (&str, &str) = ("accept-language", "de");
pub(crate) const ENGLISH: (&str, &str) = ("accept-language", "en");

pub(crate) fn uri() -> Uri {
    Uri::from_static("http://shop/item")
}

/// A cache that has a German and an English variant: the texts are 0 and 1.
pub(crate) async fn with_variants(
    layer: &HttpCacheLayer,
    origin: &Origin,
    fields: Fields<'_>,
) -> Cache {
    let cache = cached(layer, origin);
    for language in [GERMAN, ENGLISH] {
        let fields = [&[VARY, language], fields].concat();
        get(&cache, &fields).await;
        // A response with tags is stored by the second load.
        get(&cache, &fields).await;
        assert!(is_hit(&get(&cache, &fields).await), "{language:?}");
    }
    cache
}

pub(crate) type Cache = HttpCache<Origin>;

pub(crate) async fn is_stale(answer: Answer, content: &str) {
    assert!(says(&answer, "detail=revalidating"), "{}", field(&answer, "cache-status"));
    assert_eq!(text(answer).await, content);
}

pub(crate) async fn in_the_background() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn each_variant_is_served_while_one_load_replaces_it() {
    let origin = Origin::echoing();
    let layer = memory().build().unwrap();
    let cache = with_variants(&layer, &origin, &[WINDOW]).await;
    assert!(layer.handle().expire(&uri()).await.unwrap());
    for (language, old, new) in [(GERMAN, "0", "2"), (ENGLISH, "1", "3")] {
        let fields = [VARY, WINDOW, language];
        let answers = join_all((0..50).map(|_| get(&cache, &fields))).await;
        for answer in answers {
            is_stale(answer, old).await;
        }
        in_the_background().await;
        let answer = get(&cache, &fields).await;
        assert!(is_hit(&answer) && !says(&answer, "detail=revalidating"));
        assert_eq!(text(answer).await, new);
    }
    assert_eq!(origin.asked(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_second_expiry_makes_reloaded_variants_stale_again() {
    let layer = memory().build().unwrap();
    let cache = with_variants(&layer, &Origin::echoing(), &[WINDOW]).await;
    let fields = [VARY, WINDOW, GERMAN];
    for old in ["0", "2"] {
        layer.handle().expire(&uri()).await.unwrap();
        is_stale(get(&cache, &fields).await, old).await;
        in_the_background().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_variant_without_a_stale_window_is_gone() {
    let layer = memory().build().unwrap();
    let cache = with_variants(&layer, &Origin::echoing(), &[]).await;
    layer.handle().expire(&uri()).await.unwrap();
    assert!(!is_hit(&ask(&cache, "HEAD", "http://shop/item", &[VARY, GERMAN]).await));
    assert_eq!(text(get(&cache, &[VARY, ENGLISH]).await).await, "3");
}

#[tokio::test(start_paused = true)]
async fn the_origin_can_confirm_a_variant_by_its_validator() {
    let origin = Origin::new(async |request: Request<_>, nth| {
        let fields =
            [("cache-control", "max-age=60"), ("vary", "accept-language"), ("etag", "\"v\"")];
        let confirms = request.headers().contains_key("if-none-match");
        let fields = [&fields[..], &[(":status", if confirms { "304" } else { "200" })]].concat();
        Ok(page(&fields, if confirms { String::new() } else { nth.to_string() }))
    });
    let layer = memory().build().unwrap();
    let cache = with_variants(&layer, &origin, &[]).await;
    layer.handle().expire(&uri()).await.unwrap();
    let answer = get(&cache, &[ENGLISH]).await;
    assert!(says(&answer, "fwd-status=304"), "{}", field(&answer, "cache-status"));
    assert_eq!(text(answer).await, "1");
    assert!(is_hit(&get(&cache, &[ENGLISH]).await));
}

#[tokio::test(start_paused = true)]
async fn a_load_that_began_before_the_expiry_does_not_make_its_variant_fresh() {
    let origin = Origin::new(async |_, nth| {
        sleep(Duration::from_secs(1)).await;
        let says = "max-age=60, stale-while-revalidate=60";
        Ok(page(&[("cache-control", says), ("vary", "accept-language")], nth.to_string()))
    });
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &origin);
    get(&cache, &[GERMAN]).await;
    let handle = layer.handle();
    let expiry = async {
        sleep(Duration::from_millis(500)).await;
        handle.expire(&uri()).await.unwrap();
    };
    let (answer, ()) = tokio::join!(get(&cache, &[ENGLISH]), expiry);
    assert_eq!(text(answer).await, "1");
    assert_eq!(text(get(&cache, &[ENGLISH]).await).await, "2", "what it loaded is not stored");
    assert!(is_hit(&get(&cache, &[ENGLISH]).await));
}

#[tokio::test(start_paused = true)]
async fn the_variants_of_other_processes_expire_too() {
    let store = MemoryStore::new(100);
    let one = plain(store.clone()).build().unwrap();
    let other = plain(store).build().unwrap();
    let cache = with_variants(&one, &Origin::echoing(), &[WINDOW]).await;
    other.handle().expire(&uri()).await.unwrap();
    is_stale(get(&cache, &[VARY, WINDOW, ENGLISH]).await, "1").await;
}

#[tokio::test]
async fn variants_in_redis_expire_too() {
    let (_server, store) = patient_redis().await;
    let layer = plain(store).build().unwrap();
    let cache = with_variants(&layer, &Origin::echoing(), &[WINDOW]).await;
    assert!(layer.handle().expire(&uri()).await.unwrap());
    is_stale(get(&cache, &[VARY, WINDOW, ENGLISH]).await, "1").await;
    is_stale(get(&cache, &[VARY, WINDOW, GERMAN]).await, "0").await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_group_makes_the_variants_in_it_stale() {
    let layer = memory().build().unwrap();
    let group = ("echo-cache-groups", "\"a\"");
    let origin = Origin::echoing();
    let cache = with_variants(&layer, &origin, &[WINDOW, group]).await;
    let before = origin.asked().to_string();
    layer.handle().expire_group(&uri(), "a", Duration::ZERO).await.unwrap();
    for language in [GERMAN, ENGLISH] {
        let fields = [VARY, WINDOW, group, language];
        let answer = get(&cache, &fields).await;
        assert!(says(&answer, "detail=revalidating"), "{}", field(&answer, "cache-status"));
    }
    in_the_background().await;
    let reloaded = get(&cache, &[VARY, WINDOW, group, GERMAN]).await;
    assert!(!says(&reloaded, "detail=revalidating"));
    assert_eq!(text(reloaded).await, before);
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_after_an_expiry_removes_the_variants() {
    let layer = memory().build().unwrap();
    let cache = with_variants(&layer, &Origin::echoing(), &[WINDOW]).await;
    layer.handle().expire(&uri()).await.unwrap();
    assert!(layer.handle().invalidate(&uri()).await.unwrap());
    assert_eq!(text(get(&cache, &[VARY, WINDOW, GERMAN]).await).await, "2");
}

/// A store keeps and repeats an expiry. It can do so only if it is asked for one.
#[tokio::test(start_paused = true)]
async fn an_expiry_that_cannot_tell_the_variants_is_made_all_the_same() {
    let store = FaultyStore::new(MemoryStore::new(100));
    let layer = plain(store.clone()).build().unwrap();
    let cache = with_variants(&layer, &Origin::echoing(), &[WINDOW]).await;
    let before = store.calls(Operation::Expire);
    store.on(Operation::Lookup).fail(StoreErrorKind::Unreachable);
    layer.handle().expire(&uri()).await.unwrap();
    assert!(store.calls(Operation::Expire) > before);
    store.heal();
    let answer = get(&cache, &[VARY, WINDOW, GERMAN]).await;
    assert!(!is_hit(&answer) || says(&answer, "detail=revalidating"));
}

/// The store may have another response for the target than this process, whose index is its own.
#[tokio::test(start_paused = true)]
async fn an_expiry_without_the_store_is_made_of_the_target_and_of_its_variants() {
    let store = FaultyStore::new(MemoryStore::new(100)).remote();
    let layer = plain(OutageStore::new(store.clone(), Duration::from_secs(1))).build().unwrap();
    store.on_any().fail(StoreErrorKind::Unreachable);
    let cache = cached(&layer, &Origin::echoing());
    for _ in 0..3 {
        get(&cache, &[VARY, WINDOW, GERMAN]).await;
    }
    let calls = || [Operation::Expire, Operation::ExpireTag].map(|change| store.calls(change));
    assert_eq!(calls(), [0, 0]);
    layer.handle().expire(&uri()).await.unwrap_err();
    assert_eq!(calls(), [3, 1], "two are of a scheme that has no response");
}
