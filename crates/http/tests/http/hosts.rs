//! Several hosts behind one program, over real connections.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use bellwether::{Key, MemoryStore};
use bellwether_http::{HttpCacheLayer, HttpCacheLayerBuilder, KeyedRules, RequestKey};
use http::header::{CACHE_CONTROL, HOST, VARY};
use http::{Method, Uri, Version};
use http_body_util::BodyExt;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

use crate::origin::{Origin, ask, cached, is_hit, memory, page, request, text};

/// Serves the page of the host that a request is for (RFC 9112, section 3.2.2).
async fn serve<R: Clone + 'static>(layer: HttpCacheLayer<R>) -> SocketAddr {
    serve_with(layer, "accept").await
}

/// The same, where the page has this `Vary`.
async fn serve_with<R: Clone + 'static>(
    layer: HttpCacheLayer<R>,
    vary: &'static str,
) -> SocketAddr {
    let page = async move |request: Request| {
        let authority = request.uri().authority().map(ToString::to_string);
        let field = request.headers().get(HOST).map(|host| host.to_str().unwrap().to_owned());
        let host = authority.or(field).unwrap_or_default();
        ([(CACHE_CONTROL, "max-age=60"), (VARY, vary)], format!("page of {host}"))
    };
    let app = Router::new().fallback(page).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// The response to a request with this head, over HTTP/1.1.
async fn by_http_1(address: SocketAddr, head: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("{head}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

/// The content of the response to a GET with this `:authority`, over HTTP/2.
async fn by_http_2(address: SocketAddr, authority: &str) -> String {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut client, connection) =
        http2::handshake::<_, _, Body>(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let uri = format!("http://{authority}/me");
    let response = client.send_request(request("GET", &uri, &[])).await.unwrap();
    let content = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(content.to_vec()).unwrap()
}

async fn hosts_have_their_own<R: Clone + 'static>(layer: HttpCacheLayer<R>) {
    let address = serve(layer).await;
    for host in ["a.example", "b.example", "a.example"] {
        assert_eq!(by_http_2(address, host).await, format!("page of {host}"));
    }
    let contradiction = "GET http://a.example/me HTTP/1.1\r\nHost: c.example";
    assert!(by_http_1(address, contradiction).await.ends_with("page of a.example"));
    for is_hit in [false, true] {
        for host in ["c.example", "a.example", "b.example"] {
            let response = by_http_1(address, &format!("GET /me HTTP/1.1\r\nHost: {host}")).await;
            assert!(response.ends_with(&format!("page of {host}")), "{response}");
            assert!(!is_hit || response.contains("; hit"), "{response}");
        }
    }
}

#[tokio::test]
async fn hosts_share_nothing_by_their_targets() {
    hosts_have_their_own(memory().build().unwrap()).await;
}

#[tokio::test]
async fn hosts_share_nothing_where_the_program_makes_the_path_of_the_target() {
    let path = |parts: &http::request::Parts| format!("/api{}", parts.uri.path()).parse().ok();
    hosts_have_their_own(memory().target_uri(path).build().unwrap()).await;
}

#[tokio::test]
async fn hosts_share_nothing_where_the_program_repeats_the_target() {
    hosts_have_their_own(memory().target_uri(|parts| Some(parts.uri.clone())).build().unwrap())
        .await;
}

fn keyed(key: RequestKey) -> HttpCacheLayerBuilder<KeyedRules> {
    let layer = HttpCacheLayer::keyed(MemoryStore::new(100), key);
    layer.ttl(Duration::from_secs(60)).jitter(0.0)
}

#[tokio::test]
async fn hosts_share_nothing_by_keys_with_the_host() {
    hosts_have_their_own(keyed(RequestKey::path().host()).build().unwrap()).await;
    hosts_have_their_own(keyed(RequestKey::by(|_| Some(Key::of("all"))).host()).build().unwrap())
        .await;
    hosts_have_their_own(
        keyed(RequestKey::extract(|_: Method| Key::of("all")).host()).build().unwrap(),
    )
    .await;
}

/// Over HTTP/2 no request has the field, so it selects no variant.
#[tokio::test]
async fn a_response_that_varies_by_host_is_for_its_own_host() {
    let address = serve_with(keyed(RequestKey::path()).build().unwrap(), "host").await;
    for host in ["a.example", "b.example", "a.example"] {
        assert_eq!(by_http_2(address, host).await, format!("page of {host}"));
    }
}

/// One that has TLS ended before it may send those to `https` who state `http`.
#[tokio::test]
async fn what_an_origin_answers_to_a_stated_scheme_is_for_no_request_that_states_none() {
    let origin = Origin::new(async |request: http::Request<Body>, _| {
        Ok(page(&[("cache-control", "max-age=60")], format!("{:?}", request.uri().scheme_str())))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    for (uri, seen) in [("http://a.example/me", "Some(\"http\")"), ("/me", "None")] {
        assert_eq!(text(ask(&cache, "GET", uri, &[("host", "a.example")]).await).await, seen);
    }
}

/// Middleware that replaces the URI by a path removes the host from requests over HTTP/2.
#[tokio::test]
async fn hosts_share_nothing_where_middleware_removes_the_authority() {
    let origin = Origin::new(async |request: http::Request<Body>, _| {
        let host = request.extensions().get::<Uri>().unwrap().host().unwrap().to_owned();
        Ok(page(&[("cache-control", "max-age=60")], host))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    for host in ["a.example", "b.example"] {
        let mut request = request("GET", "/me", &[]);
        *request.version_mut() = Version::HTTP_2;
        request.extensions_mut().insert(format!("https://{host}/").parse::<Uri>().unwrap());
        let Ok(answer) = cache.clone().oneshot(request).await;
        assert_eq!(text(answer).await, host);
    }
}

#[tokio::test]
async fn a_key_with_the_host_is_filled_with_it() {
    let layer = keyed(RequestKey::path().host().query(["q"])).build().unwrap();
    let cache = cached(&layer, &Origin::counting(&[]));
    let is_stored = async |uri: &str, fields| is_hit(&ask(&cache, "GET", uri, fields).await);
    let key = RequestKey::path().host().query(["q"]);
    let of = |uri: &str, host: Option<&str>| {
        let request = host.iter().fold(Request::get(uri), |it, host| it.header("host", *host));
        key.of(request.body(()).unwrap())
    };
    let host = [("host", "Shop.example:443")];
    for filled in [of("https://shop.example/item?q=1", None), of("/item?q=1", Some("SHOP.example"))]
    {
        is_stored("/item?q=1", &host).await;
        assert!(is_stored("http://shop.example/item?q=1", &[]).await);
        let other = of("https://other.example/item?q=1", None).unwrap();
        layer.handle().invalidate(&other).await.unwrap();
        layer.handle().invalidate(&of("/item?q=1", None).unwrap()).await.unwrap();
        assert!(is_stored("/item?q=1", &host).await);
        assert!(layer.handle().invalidate(&filled.unwrap()).await.unwrap());
    }
    assert!(of("/", Some("a b")).is_err() && of("http://a/", Some("b")).is_err());
}

#[test]
fn the_field_host_is_no_part_of_a_key() {
    let key = RequestKey::path().header("Host").header("no field");
    let error = key.of(Request::new(())).unwrap_err().to_string();
    assert!(error.contains("RequestKey::host"), "{error}");
    let layer = HttpCacheLayer::keyed(MemoryStore::new(1), key).max_waiters(0);
    let error = layer.build().unwrap_err().to_string();
    assert!(error.contains("RequestKey::host"), "{error}");
}
