//! What the layer wraps: routers, routes, and a client.

use axum::body::Body;
use axum::routing::get;
use axum::{Router, ServiceExt as _, extract::Request};
use bellwether::MemoryStore;
use bellwether_http::{HttpCache, HttpCacheLayer};
use http::header::CACHE_CONTROL;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower::{Layer, Service, ServiceExt};

use crate::origin::{memory, request};

fn fresh(text: &'static str) -> axum::routing::MethodRouter {
    get(async move || ([(CACHE_CONTROL, "max-age=60")], text))
}

/// Asks twice. Returns `Cache-Status` and content of the second response.
async fn twice<S, B>(service: S, uri: &str) -> (String, String)
where
    S: Service<http::Request<Body>, Response = http::Response<B>> + Clone,
    S::Error: std::fmt::Debug,
    B: http_body::Body<Data = bytes::Bytes>,
    B::Error: std::fmt::Debug,
{
    let first = service.clone().oneshot(request("GET", uri, &[])).await.unwrap();
    assert!(!first.headers()["cache-status"].to_str().unwrap().contains("hit"));
    let second = service.oneshot(request("GET", uri, &[])).await.unwrap();
    let said = second.headers()["cache-status"].to_str().unwrap().to_owned();
    let content = second.into_body().collect().await.unwrap().to_bytes();
    (said, String::from_utf8(content.to_vec()).unwrap())
}

#[tokio::test]
async fn a_router_is_cached_by_a_layer_on_it() {
    let app: Router = Router::new().route("/a", fresh("a")).layer(memory().build().unwrap());
    let (said, content) = twice(app, "/a").await;
    assert!(said.starts_with("bellwether; hit"), "{said}");
    assert_eq!(content, "a");
}

#[tokio::test]
async fn a_route_is_cached_by_a_layer_on_it() {
    let app: Router = Router::new().route("/a", fresh("a").layer(memory().build().unwrap()));
    let (said, _) = twice(app, "/a").await;
    assert!(said.starts_with("bellwether; hit"), "{said}");
}

#[tokio::test]
async fn a_whole_application_is_cached_from_outside() {
    let app: Router = Router::new().route("/a", fresh("a"));
    let (said, _) = twice(memory().build().unwrap().layer(app), "/a").await;
    assert!(said.starts_with("bellwether; hit"), "{said}");
}

/// Two routers below one another see the same path.
#[tokio::test]
async fn nested_routers_do_not_share_what_they_keep() {
    let layer = memory().build().unwrap();
    let nested = |text| Router::new().route("/x", fresh(text)).layer(layer.clone());
    let app: Router = Router::new().nest("/a", nested("a")).nest("/b", nested("b"));
    assert_eq!(twice(app.clone(), "/a/x").await.1, "a");
    assert_eq!(twice(app, "/b/x").await.1, "b");
}

async fn served(
    app: impl Service<
        Request,
        Response = axum::response::Response,
        Error = std::convert::Infallible,
        Future: Send,
    > + Clone
    + Send
    + Sync
    + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app.into_make_service()).await });
    format!("http://{address}")
}

#[tokio::test]
async fn a_client_behind_the_layer_is_a_reverse_proxy() {
    let origin = served(Router::new().route("/a", fresh("a"))).await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let proxy: HttpCache<_> =
        HttpCacheLayer::builder(MemoryStore::new(1_000)).build().unwrap().layer(client);
    let (said, content) = twice(proxy, &format!("{origin}/a")).await;
    assert!(said.starts_with("bellwether; hit"), "{said}");
    assert_eq!(content, "a");
}

#[tokio::test]
async fn what_a_handler_says_with_trailers_and_lengths_goes_over_the_wire() {
    let app: Router = Router::new().route("/a", fresh("text")).layer(memory().build().unwrap());
    let base = served(app).await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    for _ in 0..2 {
        let head = client.request(request("HEAD", &format!("{base}/a"), &[])).await.unwrap();
        assert_eq!(head.headers()["content-length"], "4");
        let whole = client.request(request("GET", &format!("{base}/a"), &[])).await.unwrap();
        assert_eq!(whole.headers()["content-length"], "4");
        assert_eq!(whole.into_body().collect().await.unwrap().to_bytes(), "text");
    }
}
