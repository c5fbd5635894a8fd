//! `PURGE`: removal of stored responses by clients that have the token.

use std::time::Duration;

use axum::body::Body;
use axum::routing::get as route;
use axum::{Router, extract::Path};
use bellwether::MemoryStore;
use bellwether::store::StoreErrorKind;
use bellwether_http::{HttpCache, HttpCacheLayer, HttpCacheLayerBuilder, RequestKey};
use bellwether_test::faulty::{FaultyStore, Operation};
use http::header::CACHE_CONTROL;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower::ServiceExt;

use crate::origin::{Origin, cached, memory, plain, request};

const TOKEN: &str = "0123456789abcdef-token";
const BEARER: (&str, &str) = ("authorization", "Bearer 0123456789abcdef-token");
const ITEM: &str = "http://shop/item";
const GROUPS: (&str, &str) = ("echo-cache-groups", "\"a\", \"b\"");
const KEYS: (&str, &str) = ("echo-surrogate-key", "k l");
const WINDOW: (&str, &str) = ("echo-cache-control", "max-age=60, stale-while-revalidate=60");

type Fields<'a> = &'a [(&'a str, &'a str)];

/// A cached origin that can be purged.
struct Shop(HttpCache<Origin>);

impl Shop {
    fn of(layer: HttpCacheLayerBuilder) -> Self {
        Self(cached(&layer.purge_token(TOKEN).build().unwrap(), &Origin::echoing()))
    }

    fn new() -> Self {
        Self::of(memory().surrogate_keys("surrogate-key"))
    }

    /// The status of a response, its text, and `Cache-Status`.
    async fn ask(&self, method: &str, uri: &str, fields: Fields<'_>) -> (u16, String, String) {
        let answer = self.0.clone().oneshot(request(method, uri, fields)).await.unwrap();
        let status = answer.status().as_u16();
        let said =
            answer.headers().get("cache-status").map(|said| said.to_str().unwrap().to_owned());
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(text.to_vec()).unwrap(), said.unwrap_or_default())
    }

    async fn store(&self, uri: &str) {
        self.ask("GET", uri, &[GROUPS, KEYS, WINDOW]).await;
        assert!(self.is_stored(uri).await);
    }

    async fn is_stored(&self, uri: &str) -> bool {
        let (.., said) = self.ask("GET", uri, &[("cache-control", "only-if-cached")]).await;
        said.contains("; hit")
    }

    async fn purge(&self, uri: &str, fields: Fields<'_>) -> (u16, String) {
        let (status, text, _) = self.ask("PURGE", uri, &[&[BEARER], fields].concat()).await;
        (status, text)
    }
}

#[tokio::test(start_paused = true)]
async fn a_uri_is_purged_and_nothing_else() {
    let shop = Shop::new();
    shop.store(ITEM).await;
    shop.store("http://shop/other").await;
    assert_eq!(shop.purge(ITEM, &[]).await, (200, "purged\n".to_owned()));
    assert!(!shop.is_stored(ITEM).await && shop.is_stored("http://shop/other").await);
    assert_eq!(shop.purge(ITEM, &[]).await, (200, "nothing was stored\n".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn groups_and_surrogate_keys_are_purged_instead_of_the_uri() {
    for named in [("cache-groups", "\"b\""), ("surrogate-key", "x l")] {
        let shop = Shop::new();
        shop.store(ITEM).await;
        shop.ask("GET", "http://shop/all", &[]).await;
        assert_eq!(shop.purge("http://shop/all", &[named]).await.0, 200);
        assert!(!shop.is_stored(ITEM).await, "{named:?}");
        assert!(shop.is_stored("http://shop/all").await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_purged_group_is_that_of_the_origin_of_the_uri() {
    let shop = Shop::new();
    shop.store(ITEM).await;
    shop.purge("http://elsewhere/item", &[("cache-groups", "\"a\"")]).await;
    assert!(shop.is_stored(ITEM).await);
}

#[tokio::test(start_paused = true)]
async fn a_soft_purge_makes_responses_stale() {
    for named in [None, Some(("cache-groups", "\"a\"")), Some(("surrogate-key", "k"))] {
        let shop = Shop::new();
        shop.store(ITEM).await;
        let fields: Vec<_> = [("soft-purge", "1")].into_iter().chain(named).collect();
        assert_eq!(shop.purge(ITEM, &fields).await, (200, "purged\n".to_owned()));
        let (.., said) = shop.ask("GET", ITEM, &[WINDOW]).await;
        assert!(said.contains("detail=revalidating"), "{named:?}: {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_token_nothing_is_purged() {
    let shop = Shop::new();
    shop.store(ITEM).await;
    let other = "Bearer 0123456789abcdef-tokem";
    for fields in
        [&[][..], &[("authorization", other)], &[("authorization", TOKEN)], &[BEARER, BEARER]]
    {
        let asked = shop.0.clone().oneshot(request("PURGE", ITEM, fields)).await.unwrap();
        assert_eq!(asked.status(), StatusCode::UNAUTHORIZED, "{fields:?}");
        assert_eq!(asked.headers()["www-authenticate"], "Bearer");
    }
    assert!(shop.is_stored(ITEM).await);
}

#[test]
fn without_a_secret_there_is_no_purge() {
    for token in ["", "short", "0123456789abcdef\n"] {
        let error = memory().purge_token(token).build().unwrap_err().to_string();
        assert!(error.contains("purge token"), "{error}");
    }
}

#[tokio::test]
async fn a_purge_never_reaches_the_origin_and_other_requests_do() {
    let origin = Origin::echoing();
    let cache = cached(&memory().purge_token(TOKEN).build().unwrap(), &origin);
    for fields in [&[][..], &[BEARER]] {
        cache.clone().oneshot(request("PURGE", ITEM, fields)).await.unwrap();
    }
    assert_eq!(origin.asked(), 0);
    for method in ["GET", "POST", "purge"] {
        cache.clone().oneshot(request(method, ITEM, &[])).await.unwrap();
    }
    assert_eq!(origin.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_purged_is_named() {
    let shop = Shop::new();
    shop.store(ITEM).await;
    for (fields, named) in [
        (("soft-purge", "yes"), "Soft-Purge"),
        (("cache-groups", "a"), "Cache-Groups"),
        (("cache-groups", ""), "no group"),
        (("surrogate-key", " "), "no surrogate key"),
        (("host", "elsewhere"), "target"),
    ] {
        let (status, text) = shop.purge(ITEM, &[fields]).await;
        assert_eq!(status, 400, "{fields:?}");
        assert!(text.contains(named), "{text}");
    }
    assert!(shop.is_stored(ITEM).await);
    let ignoring = Shop::of(memory().ignoring_cache_groups());
    assert_eq!(ignoring.purge(ITEM, &[("cache-groups", "\"a\"")]).await.0, 400);
}

#[tokio::test]
async fn a_purge_that_fails_says_so() {
    let store = FaultyStore::new(MemoryStore::new(10));
    store.on(Operation::Invalidate).fail(StoreErrorKind::Refused);
    let (status, text) = Shop::of(plain(store)).purge(ITEM, &[]).await;
    assert_eq!((status, &*text), (503, "the store of the cache failed\n"));
}

#[tokio::test(start_paused = true)]
async fn the_key_of_the_request_is_purged_under_keys_of_the_program() {
    let key = RequestKey::template("item/{sku}").unwrap().query(["page"]);
    let layer = HttpCacheLayer::keyed(MemoryStore::new(100), key)
        .ttl(Duration::from_secs(60))
        .purge_token(TOKEN)
        .build()
        .unwrap();
    let handler = route(async |Path(sku): Path<u64>| format!("item {sku}"));
    let app: Router = Router::new().route("/{sku}", handler.layer(layer));
    let asked = async |method, uri, fields: Fields<'_>| {
        let answer = app.clone().oneshot(request(method, uri, fields)).await.unwrap();
        let said = answer.headers().get("cache-status").cloned();
        (answer.status(), said.is_some_and(|said| said.to_str().unwrap().contains("; hit")))
    };
    asked("GET", "/7?page=1", &[]).await;
    for other in ["/7", "/8?page=1"] {
        assert_eq!(asked("PURGE", other, &[BEARER]).await.0, StatusCode::OK);
    }
    assert!(asked("GET", "/7?page=1&x=y", &[]).await.1);
    assert_eq!(asked("PURGE", "/7?x=z&page=1", &[BEARER]).await.0, StatusCode::OK);
    assert!(!asked("GET", "/7?page=1", &[]).await.1);
}

/// A server and a client on loopback, over HTTP/1.1: an application that is cached and purged.
#[tokio::test]
async fn a_client_purges_over_a_connection() {
    let layer = memory().purge_token(TOKEN).build().unwrap();
    let news =
        async || ([(CACHE_CONTROL.as_str(), "max-age=60"), ("cache-groups", "\"news\"")], "news");
    let app: Router = Router::new().route("/news", route(news)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/news", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let asked = async |method: &str, fields: Fields<'_>| {
        let request: Request<Body> = request(method, &uri, fields);
        let answer = client.request(request).await.unwrap();
        let said = answer.headers().get("cache-status").cloned();
        (answer.status(), said.is_some_and(|said| said.to_str().unwrap().contains("; hit")))
    };
    for fields in [&[BEARER][..], &[BEARER, ("cache-groups", "\"news\"")]] {
        asked("GET", &[]).await;
        assert_eq!(asked("PURGE", &[]).await, (StatusCode::UNAUTHORIZED, false));
        assert!(asked("GET", &[]).await.1);
        assert_eq!(asked("PURGE", fields).await, (StatusCode::OK, false));
        assert!(!asked("GET", &[]).await.1, "{fields:?}");
    }
    server.abort();
}
