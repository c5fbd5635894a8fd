//! The example proxy, at the edge of HTTP.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use bellwether_http::HttpCacheLayer;
use http::Uri;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::origin::memory;
use crate::proxy;

/// A proxy in front of an origin that answers with the `Via` of the request, and reads its body.
async fn proxied(tasks: &mut JoinSet<()>, layer: HttpCacheLayer) -> SocketAddr {
    let app = Router::new().fallback(async |request: Request| {
        let via = request.headers().get("via").map(|via| via.to_str().unwrap().to_owned());
        let fields = [("cache-control", "max-age=60")];
        match axum::body::to_bytes(request.into_body(), 1_000).await {
            Ok(body) if body == Bytes::new() => (fields, via.unwrap_or_default()),
            Ok(body) => (fields, String::from_utf8(body.to_vec()).unwrap()),
            Err(error) => (fields, error.to_string()),
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move { proxy::serve(listener, &uri, &layer).await.unwrap() });
    address
}

/// All that the proxy sends for these bytes, until it closes the connection.
async fn sent(address: SocketAddr, bytes: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

/// RFC 9112, section 3.2.
#[tokio::test]
async fn a_request_names_one_valid_host() {
    let mut tasks = JoinSet::new();
    let address = proxied(&mut tasks, memory().build().unwrap()).await;
    for (version, hosts, status) in [
        ("1.1", "Host: shop.example\r\n", 200),
        ("1.1", "Host: [::1]:8080\r\n", 200),
        ("1.1", "Host:\r\n", 200),
        ("1.0", "", 200),
        ("1.1", "", 400),
        ("1.1", "Host: shop.example\r\nHost: shop.example\r\n", 400),
        ("1.0", "Host: a.example\r\nHost: b.example\r\n", 400),
        ("1.1", "Host: shop example\r\n", 400),
        ("1.1", "Host: user@shop.example\r\n", 400),
        ("1.1", "Host: shop.example/a\r\n", 400),
        ("1.1", "Host: shop.example:port\r\n", 400),
    ] {
        for target in ["/a", "http://shop.example/a"] {
            let head = format!("GET {target} HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n");
            let response = sent(address, &head).await;
            assert!(response.contains(&format!("HTTP/{version} {status}")), "{head} {response}");
        }
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_an_error_of_the_client() {
    let mut tasks = JoinSet::new();
    let address = proxied(&mut tasks, memory().build().unwrap()).await;
    let post = async |chunks: &str| {
        let head =
            "POST /a HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\nConnection: close";
        sent(address, &format!("{head}\r\n\r\n{chunks}")).await
    };
    for broken in ["zz\r\nabc\r\n", "3\r\nabc\r\nzz\r\n", "3\r\nabcdef\r\n0\r\n\r\n"] {
        let response = post(broken).await;
        assert!(response.starts_with("HTTP/1.1 400"), "{broken} {response}");
    }
    let response = post("3\r\nabc\r\n0\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 200") && response.contains("abc"), "{response}");
}

/// RFC 9110, section 7.6.3.
#[tokio::test]
async fn via_has_the_version_of_the_message_that_was_received() {
    let mut tasks = JoinSet::new();
    let address = proxied(&mut tasks, memory().build().unwrap()).await;
    for version in ["1.0", "1.1"] {
        let head =
            format!("GET /{version} HTTP/{version}\r\nHost: shop\r\nConnection: close\r\n\r\n");
        let response = sent(address, &head).await;
        assert!(response.ends_with(&format!("{version} bellwether")), "{response}");
        assert!(response.contains("via: 1.1 bellwether"), "{response}");
    }
}
