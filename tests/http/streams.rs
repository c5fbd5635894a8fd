//! Bodies: those that go through, and those that break off.

use std::sync::Mutex;

use axum::body::Body;
use bellwether::http::HttpCacheLayer;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tower::BoxError;

use crate::origin::{Origin, cached, get, is_hit, memory, page, text};

type Frames = Result<Frame<Bytes>, BoxError>;

fn data(text: &'static str) -> Frames {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

fn body(frames: Vec<Frames>) -> Body {
    Body::new(StreamBody::new(stream::iter(frames)))
}

fn small() -> HttpCacheLayer {
    memory().max_entry_bytes(1_000).unwrap()
}

#[tokio::test]
async fn what_is_too_large_goes_through_and_does_not_wait_for_its_end() {
    let (sender, receiver) = mpsc::channel::<Frames>(4);
    let sent = Mutex::new(Some(receiver));
    let origin = Origin::new(move |_, _| {
        let receiver = sent.lock().unwrap().take().expect("asked once");
        let body = Body::new(StreamBody::new(ReceiverStream::new(receiver)));
        async move { Ok(page(&[("cache-control", "max-age=60"), ("etag", "\"x\"")], body)) }
    });
    let cache = cached(&small(), &origin);
    let first: &'static str = "a".repeat(1_001).leak();
    sender.send(data(first)).await.unwrap();
    // The origin is not at its end, and the answer is here.
    let mut answer = get(&cache, &[]).await;
    assert_eq!(answer.headers()["etag"], "\"x\"");
    let frame = answer.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), first);
    sender.send(data("rest")).await.unwrap();
    let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("y"))]);
    sender.send(Ok(Frame::trailers(trailers.clone()))).await.unwrap();
    drop(sender);
    let rest = answer.into_body().collect().await.unwrap();
    assert_eq!(rest.trailers(), Some(&trailers));
    assert_eq!(rest.to_bytes(), "rest");
}

#[tokio::test]
async fn what_is_too_large_is_not_kept() {
    let origin =
        Origin::new(async |_, _| Ok(page(&[("cache-control", "max-age=60")], "a".repeat(2_000))));
    let cache = cached(&small(), &origin);
    for _ in 0..3 {
        assert_eq!(text(get(&cache, &[]).await).await.len(), 2_000);
    }
    assert_eq!(origin.asked(), 3);
}

#[tokio::test]
async fn trailers_are_kept() {
    let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))]);
    let sent = trailers.clone();
    let origin = Origin::new(move |_, _| {
        let body = body(vec![data("text"), Ok(Frame::trailers(sent.clone()))]);
        async move { Ok(page(&[("cache-control", "max-age=60")], body)) }
    });
    let cache = cached(&memory(), &origin);
    get(&cache, &[]).await;
    let answer = get(&cache, &[]).await;
    assert!(is_hit(&answer));
    let content = answer.into_body().collect().await.unwrap();
    assert_eq!(content.trailers(), Some(&trailers));
    assert_eq!(content.to_bytes(), "text");
}

#[tokio::test(start_paused = true)]
async fn what_breaks_off_is_not_given_and_not_kept() {
    let origin = Origin::new(async |_, nth| {
        let fields = [("cache-control", "max-age=60")];
        let broken = vec![data("half"), Err("the connection broke".into())];
        Ok(if nth == 0 { page(&fields, body(broken)) } else { page(&fields, "whole") })
    });
    let layer = memory().failure_windows(Default::default(), Default::default()).unwrap();
    let cache = cached(&layer, &origin);
    let answer = get(&cache, &[]).await;
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    assert!(!text(answer).await.contains("half"));
    assert_eq!(text(get(&cache, &[]).await).await, "whole");
}

#[tokio::test(start_paused = true)]
async fn what_is_shorter_than_was_announced_is_not_given() {
    let fields = [("cache-control", "max-age=60"), ("content-length", "9")];
    let origin =
        Origin::new(move |_, _| async move { Ok(page(&fields, body(vec![data("half")]))) });
    let answer = get(&cached(&memory(), &origin), &[]).await;
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
}
