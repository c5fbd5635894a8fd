//! The target URI behind routers and middleware that rewrite the path.

use axum::Router;
use axum::body::Body;
use axum::extract::{OriginalUri, Path, Request};
use axum::middleware::map_request;
use axum::routing::get;
use bellwether::MemoryStore;
use bellwether_http::{HttpCacheLayer, HttpHandle, RequestKey};
use http::{Uri, header::CACHE_CONTROL};
use http_body_util::BodyExt;
use tower::util::MapRequest;
use tower::{Service, ServiceExt};

use crate::origin::{memory, request};

type Said = ([(http::HeaderName, &'static str); 1], String);

fn fresh(text: String) -> Said {
    ([(CACHE_CONTROL, "max-age=60")], text)
}

/// Says what it sees.
async fn seen(uri: Uri) -> Said {
    fresh(uri.path_and_query().unwrap().to_string())
}

/// A router that says what it sees, behind a layer.
fn seeing(layer: &HttpCacheLayer) -> Router {
    let handlers = get(seen).put(async || "changed");
    Router::new().route("/", handlers.clone()).route("/{*rest}", handlers).layer(layer.clone())
}

fn with_path(mut request: Request, path: &str) -> Request {
    *request.uri_mut() = path.parse().unwrap();
    request
}

/// Puts the tenant that a request names in a field before its path.
fn of_tenant(request: Request) -> Request {
    let Some(tenant) = request.headers().get("x-tenant") else { return request };
    let path = format!("/{}{}", tenant.to_str().unwrap(), request.uri());
    with_path(request, &path)
}

async fn rewrite(request: Request) -> Request {
    of_tenant(request)
}

/// The content of an answer, and whether it was kept.
async fn ask<S, B>(service: &S, method: &str, uri: &str, tenant: &str) -> (String, bool)
where
    S: Service<http::Request<Body>, Response = http::Response<B>> + Clone,
    S::Error: std::fmt::Debug,
    B: http_body::Body<Data = bytes::Bytes>,
    B::Error: std::fmt::Debug,
{
    let fields: &[(&str, &str)] = if tenant.is_empty() { &[] } else { &[("x-tenant", tenant)] };
    let answer = service.clone().oneshot(request(method, uri, fields)).await.unwrap();
    let said = answer.headers().get("cache-status").map_or("", |said| said.to_str().unwrap());
    let is_kept = said.contains("; hit");
    let content = answer.into_body().collect().await.unwrap().to_bytes();
    (String::from_utf8(content.to_vec()).unwrap(), is_kept)
}

/// Asks for each of some pages twice: the first time it is loaded, the second time it is kept.
async fn has_its_own<S, B>(service: &S, pages: &[(&str, &str, &str)])
where
    S: Service<http::Request<Body>, Response = http::Response<B>> + Clone,
    S::Error: std::fmt::Debug,
    B: http_body::Body<Data = bytes::Bytes>,
    B::Error: std::fmt::Debug,
{
    for is_kept in [false, true] {
        for (uri, tenant, content) in pages {
            let given = ask(service, "GET", uri, tenant).await;
            assert_eq!(given, ((*content).to_owned(), is_kept), "{uri} of {tenant:?}");
        }
    }
}

#[tokio::test]
async fn tenants_by_a_path_that_middleware_writes_share_nothing() {
    let pages = [("/x?q", "a", "/a/x?q"), ("/x?q", "b", "/b/x?q"), ("/x?q", "", "/x?q")];
    let within = seeing(&memory().build().unwrap()).layer(map_request(rewrite));
    has_its_own(&within, &pages).await;
    let outside = MapRequest::new(seeing(&memory().build().unwrap()), of_tenant);
    has_its_own(&outside, &pages).await;
    let between = Router::new()
        .fallback_service(MapRequest::new(seeing(&memory().build().unwrap()), of_tenant));
    has_its_own(&between, &pages).await;
}

#[tokio::test]
async fn tenants_share_nothing_where_middleware_writes_within_a_nested_router() {
    let layer = memory().build().unwrap();
    let nested = || seeing(&layer).layer(map_request(rewrite));
    let app = Router::new().nest("/one", nested()).nest("/other", nested());
    let pages = [
        ("/one/x", "a", "/a/x"),
        ("/one/x", "b", "/b/x"),
        ("/one/x", "", "/x"),
        ("/other/x", "a", "/a/x"),
        ("/other/x", "", "/x"),
    ];
    has_its_own(&app, &pages).await;
}

#[tokio::test]
async fn tenants_share_nothing_where_middleware_writes_before_a_nested_router() {
    let app =
        Router::new().nest("/one", seeing(&memory().build().unwrap())).layer(map_request(rewrite));
    // The router does not find its prefix, and leaves the path as it is.
    let pages = [("/one/x", "a", "/a/one/x"), ("/one/x", "b", "/b/one/x"), ("/one/x", "", "/x")];
    has_its_own(&app, &pages).await;
}

/// The handler sees the same path for each of them, and the tenant as a parameter.
#[tokio::test]
async fn tenants_share_nothing_where_a_nested_router_takes_off_what_middleware_has_written() {
    let handler =
        get(async |Path(tenant): Path<String>, uri: Uri| fresh(format!("{tenant}: {uri}")));
    let nested =
        |layer: &HttpCacheLayer| Router::new().route("/x", handler.clone()).layer(layer.clone());
    let layer = memory().build().unwrap();
    let inner = Router::new().nest("/{tenant}", nested(&layer));
    let app = Router::new().fallback_service(MapRequest::new(inner, of_tenant));
    has_its_own(&app, &[("/x", "a", "a: /x"), ("/x", "b", "b: /x"), ("/x", "a%2fb", "a/b: /x")])
        .await;

    // The path of the client has the form of a rewritten path.
    let replace = |request: Request| {
        let tenant =
            request.headers().get("x-tenant").map(|tenant| tenant.to_str().unwrap().to_owned());
        let Some(tenant) = tenant else { return request };
        with_path(request, &format!("/{tenant}/x"))
    };
    let inner = Router::new().nest("/{tenant}", nested(&memory().build().unwrap()));
    let app = Router::new().fallback_service(MapRequest::new(inner, replace));
    has_its_own(&app, &[("/a/x", "", "a: /x"), ("/a/x", "b", "b: /x"), ("/a/x", "c", "c: /x")])
        .await;
}

#[tokio::test]
async fn nested_routers_share_nothing_however_they_are_nested() {
    let layer = memory().build().unwrap();
    let deep = |path| Router::new().nest(path, seeing(&layer));
    let app = Router::new()
        .nest("/a", deep("/b"))
        .nest("/b", deep("/b"))
        .nest("/{shop}/shelf", seeing(&layer))
        .nest_service("/service", seeing(&layer))
        .nest("/slash/", seeing(&layer));
    let pages = [
        ("/a/b/x?q", "", "/x?q"),
        ("/b/b/x?q", "", "/x?q"),
        ("/a/b/x?r", "", "/x?r"),
        ("/s/shelf/x", "", "/x"),
        ("/t/shelf/x", "", "/x"),
        ("/%74/shelf/x", "", "/x"),
        ("/t%2F/shelf/x", "", "/x"),
        ("/service/x", "", "/x"),
        ("/service", "", "/"),
        ("/slash/x", "", "/x"),
    ];
    has_its_own(&app, &pages).await;
}

#[tokio::test]
async fn what_middleware_makes_the_same_is_kept_once_and_changed_once() {
    let without_query = |request: Request| {
        let path = request.uri().path().to_owned();
        with_path(request, &path)
    };
    let app = seeing(&memory().build().unwrap())
        .layer(map_request(move |request| std::future::ready(without_query(request))));
    assert!(!ask(&app, "GET", "/x?utm=1", "").await.1);
    assert!(ask(&app, "GET", "/x?utm=2", "").await.1);
    ask(&app, "PUT", "/x", "").await;
    assert!(!ask(&app, "GET", "/x?utm=1", "").await.1);
}

async fn is_removed(app: &Router, cache: &HttpHandle, asked: (&str, &str), by: &'static str) {
    let (uri, tenant) = asked;
    ask(app, "GET", uri, tenant).await;
    assert!(ask(app, "GET", uri, tenant).await.1);
    cache.invalidate(&Uri::from_static(by)).await.unwrap();
    assert!(!ask(app, "GET", uri, tenant).await.1, "{by}");
    ask(app, "PUT", uri, tenant).await;
    assert!(!ask(app, "GET", uri, tenant).await.1, "{uri}");
}

#[tokio::test]
async fn what_is_kept_is_removed_by_the_uri_with_what_routers_took_off() {
    let layer = memory().build().unwrap();
    let nested = || seeing(&layer).layer(map_request(rewrite));
    let app = Router::new().nest("/one", nested()).nest("/{shop}/shelf", nested());
    let cache = layer.handle();
    is_removed(&app, &cache, ("/one/x?q", ""), "/one/x?q").await;
    is_removed(&app, &cache, ("/one/x?q", "a"), "/one/a/x?q").await;
    is_removed(&app, &cache, ("/s%20t/shelf/x", ""), "/s%20t/shelf/x").await;
    is_removed(&app, &cache, ("/s%20t/shelf/x", "a"), "/s%20t/shelf/a/x").await;
}

#[tokio::test]
async fn the_program_may_say_what_the_target_is() {
    let original = |parts: &http::request::Parts| {
        parts.extensions.get::<OriginalUri>().map(|OriginalUri(uri)| uri.clone())
    };
    let layer = memory().target_uri(original).build().unwrap();
    let app = seeing(&layer).layer(map_request(rewrite));
    assert_eq!(ask(&app, "GET", "/x", "a").await, ("/a/x".to_owned(), false));
    assert_eq!(ask(&app, "GET", "/x", "b").await, ("/a/x".to_owned(), true));
    layer.handle().invalidate(&Uri::from_static("/x")).await.unwrap();
    assert_eq!(ask(&app, "GET", "/x", "b").await, ("/b/x".to_owned(), false));
    let none = seeing(&memory().target_uri(|_| None).build().unwrap());
    for _ in 0..2 {
        assert!(!ask(&none, "GET", "/x", "").await.1);
    }
}

#[tokio::test]
async fn keys_by_the_path_are_by_the_path_with_what_routers_took_off() {
    let layer = HttpCacheLayer::keyed(MemoryStore::new(100), RequestKey::path().query(["q"]));
    let layer = layer.ttl(std::time::Duration::from_secs(60)).build().unwrap();
    let nested = || {
        let router = Router::new().route("/x", get(seen)).layer(layer.clone());
        router.layer(map_request(rewrite))
    };
    let app = Router::new().nest("/one", nested()).nest("/other", nested());
    let pages = [
        ("/one/x", "", "/x"),
        ("/one/x", "a", "/a/x"),
        ("/other/x", "", "/x"),
        ("/other/x?q=1", "b", "/b/x?q=1"),
    ];
    has_its_own(&app, &pages).await;
    layer
        .handle()
        .invalidate(&bellwether::Key::of("path").with("/one/a/x").with("q").with(0))
        .await
        .unwrap();
    assert!(!ask(&app, "GET", "/one/x", "a").await.1);
}
