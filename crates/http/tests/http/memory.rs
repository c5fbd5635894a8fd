//! Stored responses take no more memory than the store counts.

use std::convert::Infallible;

use allocation_counter::measure;
use axum::body::Body;
use bellwether::MemoryStore;
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use tower::{Layer, ServiceExt, service_fn};

use crate::origin::{plain, request};

/// A response as a client of HTTP/1.1 gives it: its parts are parts of the connection's buffer.
fn received(content: usize) -> Response<Body> {
    let mut buffer = vec![b'x'; 16 * 1024];
    buffer[..10].copy_from_slice(b"max-age=60");
    let buffer = Bytes::from(buffer);
    let mut response = Response::new(Body::from(buffer.slice(1_000..1_000 + content)));
    let value = |range| HeaderValue::from_maybe_shared(buffer.slice(range)).unwrap();
    let headers = response.headers_mut();
    headers.insert("cache-control", value(0..10));
    for name in ["content-type", "etag", "last-modified", "server", "x-request-id", "x-mine"] {
        headers.insert(name, value(20..50));
    }
    response
}

/// How many bytes are allocated, and how many are counted, after twice as many responses as the store
/// holds.
fn taken(content: usize) -> (usize, usize) {
    const MOST: usize = 1_000;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = MemoryStore::new(MOST);
    let layer = plain(store.clone()).build().unwrap();
    let origin =
        service_fn(move |_: Request<Body>| async move { Ok::<_, Infallible>(received(content)) });
    let cache = layer.layer(origin);
    let used = measure(|| {
        runtime.block_on(async {
            for nth in 0..2 * MOST {
                let asked = request("GET", &format!("http://shop/item/{nth}"), &[]);
                drop(cache.clone().oneshot(asked).await.unwrap());
            }
        });
    });
    assert!(store.len() > MOST * 9 / 10);
    (usize::try_from(used.bytes_current).unwrap_or(0), store.stats().bytes as usize)
}

#[test]
fn no_more_memory_is_taken_than_is_counted() {
    for content in [0, 200, 2_048, 8_192] {
        let (taken, counted) = taken(content);
        println!("{content}: {taken} taken, {counted} counted, of 1,000");
        assert!(taken <= counted, "{content}: {taken} taken, {counted} counted");
        assert!(counted <= taken * 3 / 2, "{content}: {taken} taken, {counted} counted");
    }
}

#[test]
fn a_content_is_kept_once() {
    let ((small, _), (large, _)) = (taken(0), taken(10_000));
    let each = (large - small) / 1_000;
    assert!(each < 10_500, "10,000 bytes of content take {each}");
}
