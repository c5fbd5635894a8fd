//! Keys and lifetimes that the program states.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Query};
use axum::routing::get as route;
use axum::{Router, http::StatusCode};
use bellwether::{Key, MemoryStore};
use bellwether_http::{HttpCacheLayer, HttpCacheLayerBuilder, KeyedRules, RequestKey};
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::origin::{Origin, cached, get, is_hit, page, pass, request, says, text};

const MINUTE: Duration = Duration::from_secs(60);

fn keyed(key: RequestKey) -> HttpCacheLayerBuilder<KeyedRules> {
    over(MemoryStore::new(1_000), key)
}

fn over(store: MemoryStore, key: RequestKey) -> HttpCacheLayerBuilder<KeyedRules> {
    HttpCacheLayer::keyed(store, key).ttl(MINUTE).jitter(0.0)
}

async fn body(app: &Router, uri: &str) -> String {
    let answer = app.clone().oneshot(request("GET", uri, &[])).await.unwrap();
    let content = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(content.to_vec()).unwrap()
}

async fn is_kept(
    cache: &bellwether_http::HttpCache<Origin>,
    uri: &str,
    fields: &[(&str, &str)],
) -> bool {
    is_hit(&crate::origin::ask(cache, "GET", uri, fields).await)
}

#[tokio::test(start_paused = true)]
async fn what_says_nothing_is_kept_for_as_long_as_the_program_says() {
    let origin = Origin::counting(&[]);
    let cache = cached(&keyed(RequestKey::path()).build().unwrap(), &origin);
    get(&cache, &[]).await;
    pass(59).await;
    assert!(is_hit(&get(&cache, &[("cache-control", "no-cache")]).await), "demands are not heard");
    pass(1).await;
    assert!(!is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn what_a_response_forbids_is_respected() {
    for fields in [
        &[("cache-control", "no-store")],
        &[("cache-control", "private")],
        &[("cache-control", "no-cache")],
        &[("set-cookie", "a=b")],
        &[("vary", "cookie")],
    ] {
        let origin = Origin::new(async move |_, _| Ok(page(fields, "")));
        let cache = cached(&keyed(RequestKey::path()).build().unwrap(), &origin);
        get(&cache, &[]).await;
        assert!(!is_hit(&get(&cache, &[]).await), "{fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_query_counts_as_far_as_it_is_named() {
    let cache = cached(
        &keyed(RequestKey::path().query(["page", "q"])).build().unwrap(),
        &Origin::counting(&[]),
    );
    assert!(!is_kept(&cache, "/items?page=1&q=wool", &[]).await);
    assert!(is_kept(&cache, "/items?q=wool&utm=x&page=1", &[]).await);
    // The handler decodes the names of parameters.
    for other in
        ["page=2&q=wool", "page=1", "q=wool&page=1&q=b", "page=1&%71=wool", "page=1&q=wool&%71=x"]
    {
        let is_same = other == "page=1&%71=wool";
        assert_eq!(is_kept(&cache, &format!("/items?{other}"), &[]).await, is_same, "{other}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_with_credentials_bypass_the_cache_unless_the_key_ignores_them() {
    let origin = Origin::counting(&[]);
    let plain = keyed(RequestKey::path()).build().unwrap();
    let ignoring = keyed(RequestKey::path().ignoring_credentials()).build().unwrap();
    let part = keyed(RequestKey::path().header("cookie")).build().unwrap();
    for fields in [[("cookie", "a=b")], [("authorization", "Bearer x")]] {
        let cache = cached(&plain, &origin);
        for _ in 0..2 {
            let answer = get(&cache, &fields).await;
            assert!(says(&answer, "fwd=bypass"), "{answer:?}");
            assert!(says(&answer, "detail=credentials"), "{answer:?}");
        }
        let cache = cached(&ignoring, &origin);
        get(&cache, &[]).await;
        assert!(is_hit(&get(&cache, &fields).await), "{fields:?}");
    }
    let cache = cached(&part, &origin);
    get(&cache, &[("cookie", "a=b")]).await;
    assert!(is_hit(&get(&cache, &[("cookie", "a=b")]).await));
    assert!(!is_hit(&get(&cache, &[("cookie", "a=c")]).await));
}

#[tokio::test(start_paused = true)]
async fn there_is_none_is_kept_as_long_as_is_said_for_that() {
    let origin = Origin::counting(&[(":status", "404")]);
    let cache = cached(&keyed(RequestKey::path()).build().unwrap(), &origin);
    get(&cache, &[]).await;
    assert!(!is_hit(&get(&cache, &[]).await));
    let cache = cached(
        &keyed(RequestKey::path()).not_found_ttl(Duration::from_secs(5)).build().unwrap(),
        &origin,
    );
    get(&cache, &[]).await;
    assert!(is_hit(&get(&cache, &[]).await));
    pass(5).await;
    assert!(!is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn what_a_response_says_of_its_time_is_not_heard() {
    for fields in [
        &[("cache-control", "max-age=0")][..],
        &[("cache-control", "max-age=0"), ("etag", "\"a\"")],
        &[("cache-control", "max-age=60"), ("age", "100")],
        &[("expires", "0")],
        &[(":status", "202")],
        &[(":status", "207")],
    ] {
        let origin = Origin::new(async move |_, _| Ok(page(fields, "")));
        let cache = cached(&keyed(RequestKey::path()).build().unwrap(), &origin);
        get(&cache, &[]).await;
        pass(59).await;
        assert!(is_hit(&get(&cache, &[]).await), "{fields:?}");
        pass(1).await;
        assert!(!is_hit(&get(&cache, &[]).await), "{fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_none_is_kept_though_nothing_else_is() {
    let layer = HttpCacheLayer::keyed(MemoryStore::new(100), RequestKey::path());
    let cache = cached(
        &layer.not_found_ttl(MINUTE).build().unwrap(),
        &Origin::counting(&[(":status", "404")]),
    );
    get(&cache, &[]).await;
    assert!(is_hit(&get(&cache, &[]).await));
}

/// The waiters may differ in the field that `Vary` names.
#[tokio::test(start_paused = true)]
async fn an_error_that_varies_is_served_to_its_own_caller_only() {
    let busy = [(":status", "503"), ("vary", "origin"), ("retry-after", "7")];
    let origin = Origin::new(move |_, nth| async move { Ok(page(&busy, nth.to_string())) });
    let cache = cached(&keyed(RequestKey::path()).build().unwrap(), &origin);
    let (one, other) = tokio::join!(get(&cache, &[]), get(&cache, &[]));
    for (answer, content) in [(one, "0"), (other, "1")] {
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(crate::origin::field(&answer, "retry-after"), "7");
        assert_eq!(text(answer).await, content);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_is_covered_by_what_was_there_before_whatever_it_says() {
    for says in [("cache-control", "no-store"), ("set-cookie", "a=b"), ("vary", "origin")] {
        let origin = Origin::new(move |_, nth| async move {
            Ok(if nth == 0 { page(&[], "good") } else { page(&[(":status", "503"), says], "bad") })
        });
        let cache =
            cached(&keyed(RequestKey::path()).stale_if_error(MINUTE).build().unwrap(), &origin);
        get(&cache, &[]).await;
        pass(61).await;
        for _ in 0..2 {
            assert_eq!(text(get(&cache, &[]).await).await, "good", "{says:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_handler_is_covered_by_what_it_gave_before() {
    let origin = Origin::new(async |_, nth| {
        Ok(if nth == 0 { page(&[], "good") } else { page(&[(":status", "503")], "bad") })
    });
    let cache = cached(&keyed(RequestKey::path()).stale_if_error(MINUTE).build().unwrap(), &origin);
    get(&cache, &[]).await;
    pass(61).await;
    assert_eq!(text(get(&cache, &[]).await).await, "good");
    pass(1).await;
    assert_eq!(text(get(&cache, &[]).await).await, "good");
}

#[tokio::test(start_paused = true)]
async fn templates_never_share_a_key() {
    let store = MemoryStore::new(1_000);
    let layer =
        |template| over(store.clone(), RequestKey::template(template).unwrap()).build().unwrap();
    let handler = |name: &'static str| {
        route(move |Path((one, other)): Path<(String, String)>| async move {
            format!("{name}: {one}, {other}")
        })
    };
    let app = Router::new()
        .route("/a/{one}/{other}", handler("a").layer(layer("a/{one}/{other}")))
        .route("/b/{one}/{other}", handler("b").layer(layer("b/{one}/{other}")));
    for _ in 0..2 {
        assert_eq!(body(&app, "/a/x/y").await, "a: x, y");
        assert_eq!(body(&app, "/b/x/y").await, "b: x, y");
        assert_eq!(body(&app, "/a/x%2Fy/z").await, "a: x/y, z");
        assert_eq!(body(&app, "/a/x/y%2Fz").await, "a: x, y/z");
    }
}

#[tokio::test(start_paused = true)]
async fn a_parameter_that_the_route_has_not_is_named() {
    let layer = keyed(RequestKey::template("item/{sku}").unwrap()).build().unwrap();
    let app: Router = Router::new().route("/{id}", route(async || "item").layer(layer));
    let answer = app.clone().oneshot(request("GET", "/1", &[])).await.unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(body(&app, "/1").await.contains("sku"));
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_not_text_is_rejected_by_the_handler() {
    let layer = keyed(RequestKey::template("item/{sku}").unwrap()).build().unwrap();
    let handler = route(async |Path(sku): Path<String>| sku);
    let app: Router = Router::new().route("/{sku}", handler.layer(layer));
    let answer = app.oneshot(request("GET", "/%FF", &[])).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
}

#[test]
fn a_template_that_cannot_be_read_is_refused() {
    for template in ["a/{b", "a/b}", "a/{}", "a/{b{c}}"] {
        let error = RequestKey::template(template).unwrap_err();
        assert!(error.to_string().contains(template), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_extractor_makes_a_key_and_a_request_that_it_rejects_bypasses_the_cache() {
    let loads = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = loads.clone();
    let key = RequestKey::extract(|Path(sku): Path<u32>| Key::of("item").with(sku));
    let handler = route(move |Path(sku): Path<u32>| async move {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        format!("item {sku}")
    });
    let app: Router = Router::new().route("/{sku}", handler.layer(keyed(key).build().unwrap()));
    for uri in ["/7", "/07", "/7?x"] {
        assert_eq!(body(&app, uri).await, "item 7");
    }
    assert_eq!(loads.load(std::sync::atomic::Ordering::SeqCst), 1);
    let rejected = app.oneshot(request("GET", "/seven", &[])).await.unwrap();
    assert_eq!(rejected.status(), StatusCode::BAD_REQUEST, "by the handler itself");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_bypasses_the_cache() {
    let key = RequestKey::by(|parts| {
        parts.uri.query().is_none().then(|| Key::of("page").with(parts.uri.path()))
    });
    let cache = cached(&keyed(key).build().unwrap(), &Origin::counting(&[]));
    assert!(!is_kept(&cache, "/a?preview", &[]).await);
    assert!(!is_kept(&cache, "/a?preview", &[]).await);
    assert!(!is_kept(&cache, "/a", &[]).await);
    assert!(is_kept(&cache, "/a", &[]).await);
}

#[tokio::test(start_paused = true)]
async fn a_change_under_the_same_key_removes_what_is_kept() {
    let cache = cached(&keyed(RequestKey::path()).build().unwrap(), &Origin::counting(&[]));
    get(&cache, &[]).await;
    crate::origin::ask(&cache, "PUT", "http://shop/item", &[]).await;
    assert!(!is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn a_change_leaves_what_is_kept_under_other_keys() {
    let key = RequestKey::path().query(["page"]).header("accept-language");
    let cache = cached(&keyed(key).build().unwrap(), &Origin::counting(&[]));
    let uri = "http://shop/items?page=2";
    let fields = [("accept-language", "de")];
    assert!(!is_kept(&cache, uri, &fields).await);
    crate::origin::ask(&cache, "PUT", uri, &[]).await;
    crate::origin::ask(&cache, "PUT", "http://shop/items", &fields).await;
    assert!(is_kept(&cache, uri, &fields).await);
    crate::origin::ask(&cache, "PUT", uri, &fields).await;
    assert!(!is_kept(&cache, uri, &fields).await);
}

/// This test checks by compiling: extractors below the layer work as without it.
#[tokio::test(start_paused = true)]
async fn the_handler_sees_the_request_of_the_caller_that_loads() {
    let handler =
        route(|Query(query): Query<Vec<(String, String)>>| async move { format!("{query:?}") });
    let layer = keyed(RequestKey::path().query(["q"])).build().unwrap();
    let app: Router<()> = Router::new().route("/", handler.layer(layer));
    assert_eq!(body(&app, "/?q=a").await, r#"[("q", "a")]"#);
    let _: Body = Body::empty();
}

/// The handler may not parse the field as a list.
#[tokio::test(start_paused = true)]
async fn values_of_a_field_share_a_key_if_they_are_the_same_to_the_byte() {
    let key = RequestKey::path().header("x-tenant");
    let cache = cached(&keyed(key).build().unwrap(), &Origin::counting(&[]));
    let values: [&[&str]; 9] =
        [&[], &[""], &["a"], &[",a"], &["a,"], &["a,b"], &["a, b"], &["a", "b"], &["b", "a"]];
    for values in values {
        let fields: Vec<_> = values.iter().map(|value| ("x-tenant", *value)).collect();
        assert!(!is_hit(&get(&cache, &fields).await), "{values:?}");
        assert!(is_hit(&get(&cache, &fields).await), "{values:?}");
    }
}
