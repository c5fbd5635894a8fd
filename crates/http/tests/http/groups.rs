//! `Cache-Groups` and `Cache-Group-Invalidation` (RFC 9875).

use std::sync::Arc;
use std::time::Duration;

use bellwether::MemoryStore;
use bellwether_http::{HttpCache, HttpCacheLayer, HttpHandle, RequestKey};
use http::Uri;
use tokio::sync::Notify;

use crate::origin::{Origin, ask, cached, field, is_hit, memory, page, plain, redis, says, text};

type Fields<'a> = &'a [(&'a str, &'a str)];

const SCRIPTS: Fields<'_> = &[("echo-cache-groups", "\"scripts\"")];

async fn is_stored(cache: &HttpCache<Origin>, uri: &str) -> bool {
    is_hit(&ask(cache, "GET", uri, &[("cache-control", "only-if-cached")]).await)
}

/// Stores responses with these fields.
async fn store(cache: &HttpCache<Origin>, uris: &[&str], fields: Fields<'_>) {
    for uri in uris {
        ask(cache, "GET", uri, fields).await;
        assert!(is_stored(cache, uri).await, "{uri}");
    }
}

async fn change(cache: &HttpCache<Origin>, uri: &str, groups: &str) {
    ask(cache, "POST", uri, &[("echo-cache-group-invalidation", groups)]).await;
}

fn uri(uri: &str) -> Uri {
    uri.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_change_invalidates_the_groups_that_its_response_names() {
    let cache = cached(&memory().build().unwrap(), &Origin::echoing());
    let [results, australia] = ["http://shop/results", "http://shop/australia"];
    store(&cache, &["http://shop/a.js"], SCRIPTS).await;
    store(&cache, &[results], &[("echo-cache-groups", "\"eurovision-results\"")]).await;
    store(&cache, &[australia], &[("echo-cache-groups", "\"places\", \"australia\";x=1")]).await;
    change(&cache, "http://shop/vote", "\"eurovision-results\", \"australia\"").await;
    assert!(!is_stored(&cache, results).await && !is_stored(&cache, australia).await);
    assert!(is_stored(&cache, "http://shop/a.js").await);
}

#[tokio::test(start_paused = true)]
async fn groups_are_compared_with_their_case() {
    let cache = cached(&memory().build().unwrap(), &Origin::echoing());
    store(&cache, &["http://shop/a.js"], SCRIPTS).await;
    change(&cache, "http://shop/build", "\"Scripts\", \"script\"").await;
    assert!(is_stored(&cache, "http://shop/a.js").await);
}

#[tokio::test(start_paused = true)]
async fn a_group_never_crosses_an_origin() {
    let origins = ["http://shop", "https://shop", "http://shop:8080", "http://elsewhere"];
    for named in origins {
        let layer = memory().build().unwrap();
        let cache = cached(&layer, &Origin::echoing());
        let uris = origins.map(|origin| format!("{origin}/a.js"));
        store(&cache, &uris.each_ref().map(String::as_str), SCRIPTS).await;
        change(&cache, &format!("{named}/build"), "\"scripts\"").await;
        for uri in &uris {
            assert_eq!(
                is_stored(&cache, uri).await,
                !uri.starts_with(&format!("{named}/")),
                "{uri}"
            );
        }
        for (origin, uri) in origins.into_iter().zip(&uris) {
            ask(&cache, "GET", uri, SCRIPTS).await;
            layer.handle().invalidate_group(&self::uri(named), "scripts").await.unwrap();
            assert_eq!(is_stored(&cache, uri).await, origin != named, "{uri}");
        }
    }
}

/// Requests over HTTP/2 state their scheme, and requests over HTTP/1.1 do not.
#[tokio::test(start_paused = true)]
async fn a_group_is_the_same_by_http_1_and_by_http_2() {
    let cache = cached(&memory().build().unwrap(), &Origin::echoing());
    let host = ("host", "shop");
    let (groups, named) = (SCRIPTS[0], ("echo-cache-group-invalidation", "\"scripts\""));
    for (read, written) in [("/a.js", "https://shop/build"), ("https://shop/a.js", "/build")] {
        let asked = async || ask(&cache, "GET", read, &[host, groups]).await;
        asked().await;
        assert!(is_hit(&asked().await));
        ask(&cache, "PUT", written, &[host, named]).await;
        assert!(!is_hit(&asked().await), "{read}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_to_a_safe_method_invalidates_no_group() {
    let cache = cached(&memory().build().unwrap(), &Origin::echoing());
    store(&cache, &["http://shop/a.js"], SCRIPTS).await;
    let named = [("echo-cache-group-invalidation", "\"scripts\"")];
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "PROPFIND"] {
        ask(&cache, method, "http://shop/build", &named).await;
        assert!(is_stored(&cache, "http://shop/a.js").await, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_failed_invalidates_no_group() {
    let cache = cached(&memory().build().unwrap(), &Origin::echoing());
    store(&cache, &["http://shop/a.js"], SCRIPTS).await;
    for status in ["403", "409", "500"] {
        let fields = [("echo-cache-group-invalidation", "\"scripts\""), ("echo-status", status)];
        ask(&cache, "POST", "http://shop/build", &fields).await;
        assert!(is_stored(&cache, "http://shop/a.js").await, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_does_not_cascade() {
    let cache = cached(&memory().build().unwrap(), &Origin::echoing());
    store(&cache, &["http://shop/both"], &[("echo-cache-groups", "\"a\", \"b\"")]).await;
    store(&cache, &["http://shop/other"], &[("echo-cache-groups", "\"b\"")]).await;
    change(&cache, "http://shop/change", "\"a\"").await;
    assert!(!is_stored(&cache, "http://shop/both").await);
    assert!(is_stored(&cache, "http://shop/other").await);
    // A change of the target itself is no invalidation of its groups either.
    store(&cache, &["http://shop/both"], &[("echo-cache-groups", "\"a\", \"b\"")]).await;
    ask(&cache, "PUT", "http://shop/both", &[]).await;
    assert!(is_stored(&cache, "http://shop/other").await);
}

#[tokio::test(start_paused = true)]
async fn each_of_32_groups_of_32_characters_can_be_invalidated() {
    let cache = cached(&memory().build().unwrap(), &Origin::echoing());
    let groups: Vec<_> = (0..32).map(|nth| format!("\"{nth:x>32}\"")).collect();
    let line = groups.join(", ");
    for group in &groups {
        store(&cache, &["http://shop/a.js"], &[("echo-cache-groups", &line)]).await;
        change(&cache, "http://shop/build", group).await;
        assert!(!is_stored(&cache, "http://shop/a.js").await, "{group}");
    }
    store(&cache, &["http://shop/a.js"], &[("echo-cache-groups", "\"last\"")]).await;
    change(&cache, "http://shop/build", &format!("{line}, \"last\"")).await;
    assert!(!is_stored(&cache, "http://shop/a.js").await);
}

#[tokio::test(start_paused = true)]
async fn a_field_that_cannot_be_read_is_ignored() {
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &Origin::echoing());
    store(&cache, &["http://shop/a.js"], &[("echo-cache-groups", "\"scripts\", 7")]).await;
    layer.handle().invalidate_group(&uri("http://shop"), "scripts").await.unwrap();
    assert!(is_stored(&cache, "http://shop/a.js").await);
}

/// The groups of a 304 replace those of the stored response.
#[tokio::test(start_paused = true)]
async fn a_validated_response_has_the_groups_that_the_origin_states_now() {
    let origin = Origin::new(async |_, nth| {
        let groups = if nth == 0 { "\"old\"" } else { "\"new\"" };
        let status = if nth == 0 { "200" } else { "304" };
        let fields = [("cache-control", "max-age=60"), ("etag", "\"x\""), (":status", status)];
        Ok(page(&[&fields[..], &[("cache-groups", groups)]].concat(), ""))
    });
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &origin);
    store(&cache, &["http://shop/a.js"], &[]).await;
    ask(&cache, "GET", "http://shop/a.js", &[("cache-control", "no-cache")]).await;
    layer.handle().invalidate_group(&uri("http://shop"), "new").await.unwrap();
    assert!(!is_stored(&cache, "http://shop/a.js").await);
}

#[tokio::test(start_paused = true)]
async fn a_group_has_all_variants_of_its_responses() {
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &Origin::echoing());
    let asked = async |language| {
        let fields = [SCRIPTS[0], ("echo-vary", "accept-language"), ("accept-language", language)];
        ask(&cache, "GET", "http://shop/a.js", &fields).await
    };
    for language in ["de", "en"] {
        asked(language).await;
        asked(language).await;
    }
    assert!(is_hit(&asked("de").await) && is_hit(&asked("en").await));
    layer.handle().invalidate_group(&uri("http://shop"), "scripts").await.unwrap();
    assert!(!is_hit(&asked("de").await) && !is_hit(&asked("en").await));
}

/// Its load may have begun before an invalidation of its groups, which only a commit can tell.
#[tokio::test(start_paused = true)]
async fn the_first_variant_with_groups_is_not_stored_and_does_not_say_so() {
    let cache = cached(&memory().build().unwrap(), &Origin::echoing());
    let fields = [SCRIPTS[0], ("echo-vary", "accept-language")];
    let asked = async || ask(&cache, "GET", "http://shop/a.js", &fields).await;
    let said = [says(&asked().await, "stored"), says(&asked().await, "stored")];
    assert_eq!(said, [false, true]);
    assert!(is_hit(&asked().await));
}

#[tokio::test(start_paused = true)]
async fn an_expired_group_is_served_stale_while_it_is_loaded_again() {
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &Origin::echoing());
    let stale = ("echo-cache-control", "max-age=60, stale-while-revalidate=60");
    for vary in [None, Some(("echo-vary", "accept-language"))] {
        let fields: Vec<_> = [SCRIPTS[0], stale].into_iter().chain(vary).collect();
        let uri = if vary.is_some() { "http://shop/b.js" } else { "http://shop/a.js" };
        let asked = async || ask(&cache, "GET", uri, &fields).await;
        asked().await;
        let before = text(asked().await).await;
        layer
            .handle()
            .expire_group(&self::uri("http://shop"), "scripts", Duration::ZERO)
            .await
            .unwrap();
        let answer = asked().await;
        assert!(says(&answer, "detail=revalidating"), "{}", field(&answer, "cache-status"));
        assert_eq!(text(answer).await, before);
        tokio::time::sleep(Duration::from_millis(1)).await;
        let answer = asked().await;
        assert!(is_hit(&answer));
        assert_ne!(text(answer).await, before);
    }
}

/// A load of a response of the group `scripts`, which ends after that was invalidated.
async fn invalidated_during_a_load(fields: Fields<'static>) {
    let (began, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let signals = (Arc::clone(&began), Arc::clone(&may_end));
    let origin = Origin::new(move |_, nth| {
        let (began, may_end) = signals.clone();
        async move {
            if nth == 0 {
                began.notify_one();
                may_end.notified().await;
            }
            Ok(page(fields, nth.to_string()))
        }
    });
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &origin);
    let early = tokio::spawn({
        let cache = cache.clone();
        async move { text(ask(&cache, "GET", "http://shop/a.js", &[]).await).await }
    });
    began.notified().await;
    layer.handle().invalidate_group(&uri("http://shop"), "scripts").await.unwrap();
    may_end.notify_one();
    assert_eq!(early.await.unwrap(), "0", "it began before the invalidation");
    assert_eq!(text(ask(&cache, "GET", "http://shop/a.js", &[]).await).await, "1");
}

#[tokio::test]
async fn a_group_that_is_invalidated_during_a_load_is_not_given_to_later_requests() {
    let group = [("cache-control", "max-age=60"), ("cache-groups", "\"scripts\"")];
    invalidated_during_a_load(Box::leak(Box::new(group))).await;
    let varies = [group[0], group[1], ("vary", "accept-language")];
    invalidated_during_a_load(Box::leak(Box::new(varies))).await;
}

#[tokio::test(start_paused = true)]
async fn groups_can_be_ignored() {
    let layer = memory().ignoring_cache_groups().build().unwrap();
    let cache = cached(&layer, &Origin::echoing());
    store(&cache, &["http://shop/a.js"], SCRIPTS).await;
    change(&cache, "http://shop/build", "\"scripts\"").await;
    layer.handle().invalidate_group(&uri("http://shop"), "scripts").await.unwrap();
    assert!(is_stored(&cache, "http://shop/a.js").await);
}

#[tokio::test(start_paused = true)]
async fn groups_hold_under_keys_of_the_program_too() {
    let layer = HttpCacheLayer::keyed(MemoryStore::new(100), RequestKey::path());
    let layer = layer.ttl(Duration::from_secs(60)).build().unwrap();
    let cache = cached(&layer, &Origin::echoing());
    let asked = async || is_hit(&ask(&cache, "GET", "http://shop/a.js", SCRIPTS).await);
    assert!(!asked().await && asked().await);
    change(&cache, "http://shop/build", "\"scripts\"").await;
    assert!(!asked().await && asked().await);
    for tag in HttpHandle::group_tags(&uri("http://shop"), "scripts") {
        layer.handle().invalidate_tag(&tag).await.unwrap();
    }
    assert!(!asked().await);
}

#[tokio::test]
async fn a_process_without_a_service_invalidates_groups_of_others() {
    let (_server, store) = redis().await;
    let cache = cached(&plain(store.clone()).build().unwrap(), &Origin::echoing());
    self::store(&cache, &["http://shop/a.js"], SCRIPTS).await;
    let handle: HttpHandle = plain(store).build().unwrap().handle();
    handle.invalidate_group(&uri("http://shop"), "scripts").await.unwrap();
    assert!(!is_stored(&cache, "http://shop/a.js").await);
}
