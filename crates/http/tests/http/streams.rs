//! Bodies that pass through, and bodies that fail.

use std::sync::Mutex;
use std::time::Duration;

use axum::body::Body;
use bellwether::MemoryStore;
use bellwether_http::{HttpCacheLayer, HttpCacheLayerBuilder, RequestKey};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tower::BoxError;

use crate::origin::{Answer, Origin, ask, cached, get, is_hit, memory, page, text};

type Fields = &'static [(&'static str, &'static str)];

type Frames = Result<Frame<Bytes>, BoxError>;

fn data(text: &'static str) -> Frames {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

fn body(frames: Vec<Frames>) -> Body {
    Body::new(StreamBody::new(stream::iter(frames)))
}

fn small() -> HttpCacheLayerBuilder {
    memory().max_entry_bytes(1_000)
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
    let cache = cached(&small().build().unwrap(), &origin);
    let first: &'static str = "a".repeat(1_001).leak();
    sender.send(data(first)).await.unwrap();
    // The body of the origin has not ended, and the response is here.
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
    let cache = cached(&small().build().unwrap(), &origin);
    for _ in 0..3 {
        assert_eq!(text(get(&cache, &[]).await).await.len(), 2_000);
    }
    assert_eq!(origin.asked(), 3);
}

#[tokio::test]
async fn trailers_that_make_a_response_private_are_given_to_one_client() {
    for (name, value) in
        [("cache-control", "private"), ("cache-control", "no-store"), ("set-cookie", "a=b")]
    {
        let name = http::HeaderName::from_static(name);
        let trailers = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
        for terms in ["max-age=60", "no-cache"] {
            let sent = trailers.clone();
            let origin = Origin::new(move |_, _| {
                let body = body(vec![data("text"), Ok(Frame::trailers(sent.clone()))]);
                async move { Ok(page(&[("cache-control", terms), ("etag", "\"1\"")], body)) }
            });
            let cache = cached(&memory().build().unwrap(), &origin);
            for asked in 1..4 {
                let content = get(&cache, &[]).await.into_body().collect().await.unwrap();
                assert_eq!(content.trailers(), Some(&trailers));
                assert_eq!(
                    (origin.asked(), origin.last("if-none-match")),
                    (asked, None),
                    "{value}"
                );
            }
        }
    }
}

#[tokio::test]
async fn trailers_are_kept() {
    let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))]);
    let sent = trailers.clone();
    let origin = Origin::new(move |_, _| {
        let body = body(vec![data("text"), Ok(Frame::trailers(sent.clone()))]);
        async move { Ok(page(&[("cache-control", "max-age=60")], body)) }
    });
    let cache = cached(&memory().build().unwrap(), &origin);
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
    let layer = memory().failure_windows(Default::default(), Default::default()).build().unwrap();
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
    let answer = get(&cached(&memory().build().unwrap(), &origin), &[]).await;
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
}

const BOUND: Duration = Duration::from_secs(2);

/// How precise timers are.
const MOMENT: Duration = Duration::from_millis(2);

/// An origin with bodies that have a first frame and no end.
fn endless(fields: Fields) -> Origin {
    Origin::new(async move |_, _| {
        let frames = stream::iter([data("first")]).chain(stream::pending());
        Ok(page(fields, Body::new(StreamBody::new(frames))))
    })
}

async fn first_frame(mut answer: Answer) -> Bytes {
    answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap()
}

/// Three rounds of concurrent callers. Each gets its first frame within the bound, and within an
/// eighth of it after the first round.
async fn first_frames<R>(layer: &HttpCacheLayer<R>, fields: Fields) {
    let origin = endless(fields);
    let cache = cached(layer, &origin);
    let began = Instant::now();
    for round in 0..3 {
        let began = Instant::now();
        let frames = join_all((0..10).map(async |_| first_frame(get(&cache, &[]).await).await));
        let frames = timeout(BOUND * 2, frames).await.expect("it streams");
        assert_eq!(frames, ["first"; 10]);
        // The slow response of the first round shortens the time of the next ones.
        let most = if round == 0 { BOUND } else { BOUND / 8 };
        assert!(began.elapsed() <= most + MOMENT, "{:?} in round {round}", began.elapsed());
    }
    assert!(began.elapsed() <= BOUND * 4 / 3, "callers wait each time: {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_endless_answer_streams_through_in_every_mode() {
    first_frames(&memory().build().unwrap(), &[("cache-control", "max-age=60")]).await;
    first_frames(&memory().ttl(Duration::from_secs(60)).build().unwrap(), &[]).await;
    let keyed = HttpCacheLayer::keyed(MemoryStore::new(10), RequestKey::path());
    first_frames(&keyed.ttl(Duration::from_secs(60)).build().unwrap(), &[]).await;
}

#[tokio::test(start_paused = true)]
async fn one_caller_of_an_endless_answer_has_its_first_byte_after_a_bounded_time() {
    let cache = cached(&memory().build().unwrap(), &endless(&[("cache-control", "max-age=60")]));
    let answer = timeout(BOUND * 2, get(&cache, &[])).await.expect("it streams");
    assert_eq!(first_frame(answer).await, "first");
}

#[tokio::test(start_paused = true)]
async fn what_streams_for_longer_than_a_load_may_take_is_not_cut() {
    let origin = Origin::new(async |_, _| {
        let frames = stream::unfold(0, async |nth| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            (nth < 90).then_some((data("x"), nth + 1))
        });
        Ok(page(&[("cache-control", "max-age=60")], Body::new(StreamBody::new(frames))))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    let answers = join_all((0..5).map(async |_| get(&cache, &[]).await)).await;
    for answer in answers {
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(text(answer).await.len(), 90);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_bound_on_its_time_a_slow_body_is_kept() {
    let origin = Origin::new(async |_, _| {
        let frames = stream::once(async {
            tokio::time::sleep(BOUND * 2).await;
            data("whole")
        });
        let body = Body::new(StreamBody::new(Box::pin(frames)));
        Ok(page(&[("cache-control", "max-age=60")], body))
    });
    let cache = cached(&memory().collect_within(Duration::MAX).build().unwrap(), &origin);
    get(&cache, &[]).await;
    assert!(is_hit(&get(&cache, &[]).await));
}

/// The head arrives just before the load timeout.
#[tokio::test(start_paused = true)]
async fn a_late_head_leaves_as_much_time_for_its_body_as_an_early_one() {
    let origin = Origin::new(async |_, _| {
        tokio::time::sleep(Duration::from_millis(29_900)).await;
        let frames = stream::once(async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            data("whole")
        });
        let body = Body::new(StreamBody::new(Box::pin(frames)));
        Ok(page(&[("cache-control", "max-age=60")], body))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    assert_eq!(text(get(&cache, &[]).await).await, "whole");
    assert!(is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn one_endless_answer_does_not_keep_the_next_from_being_kept() {
    let origin = Origin::new(async |_, nth| {
        let fields = [("cache-control", "max-age=60")];
        let endless = stream::iter([data("first")]).chain(stream::pending());
        Ok(match nth {
            0 => page(&fields, Body::new(StreamBody::new(endless))),
            _ => page(&fields, "whole"),
        })
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    drop(get(&cache, &[]).await);
    assert_eq!(text(get(&cache, &[]).await).await, "whole");
    assert!(is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_of_what_will_not_be_stored_does_not_wait() {
    let keyed = || HttpCacheLayer::keyed(MemoryStore::new(10), RequestKey::path());
    let minute = Duration::from_secs(60);
    for kind in ["text/event-stream", "Text/Event-Stream; charset=utf-8"] {
        let fields: Fields = vec![("content-type", kind)].leak();
        at_once(&memory().ttl(minute).build().unwrap(), fields).await;
        at_once(&keyed().ttl(minute).build().unwrap(), fields).await;
    }
    at_once(
        &small().build().unwrap(),
        &[("cache-control", "max-age=60"), ("content-length", "1001")],
    )
    .await;
}

async fn at_once<R>(layer: &HttpCacheLayer<R>, fields: Fields) {
    let cache = cached(layer, &endless(fields));
    let began = Instant::now();
    let frames = join_all((0..10).map(async |_| first_frame(get(&cache, &[]).await).await)).await;
    assert_eq!(frames, ["first"; 10], "{fields:?}");
    assert_eq!(began.elapsed(), Duration::ZERO, "{fields:?}");
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_read_share_a_budget() {
    let cache = cached(
        &memory().max_collected_bytes(8).build().unwrap(),
        &endless(&[("cache-control", "max-age=60")]),
    );
    let began = Instant::now();
    let first_of = async |uri| {
        let frame = first_frame(ask(&cache, "GET", uri, &[]).await).await;
        assert_eq!(frame, "first");
        began.elapsed()
    };
    let (one, other) = tokio::join!(first_of("http://shop/1"), first_of("http://shop/2"));
    assert!(one >= BOUND && other < MOMENT, "{one:?} {other:?}");
    // The budget is whole again.
    assert!(first_of("http://shop/3").await >= BOUND * 2);
}

/// While the budget is used up, the page passes through, and nothing is remembered about it.
#[tokio::test(start_paused = true)]
async fn a_page_that_finds_no_room_is_coalesced_as_soon_as_there_is_room() {
    let origin = Origin::new(async |request: http::Request<Body>, _| {
        let fields = [("cache-control", "max-age=60")];
        tokio::time::sleep(MOMENT).await;
        Ok(match request.uri().path() {
            "/endless" => {
                let endless = stream::iter([data("first")]).chain(stream::pending());
                page(&fields, Body::new(StreamBody::new(endless)))
            }
            _ => page(&fields, "page"),
        })
    });
    let cache = cached(&memory().max_collected_bytes(8).build().unwrap(), &origin);
    let ask_all = async || {
        let asked = origin.asked();
        let pages =
            (0..5).map(async |_| text(ask(&cache, "GET", "http://shop/page", &[]).await).await);
        assert_eq!(join_all(pages).await, ["page"; 5]);
        origin.asked() - asked
    };
    let used_up = async {
        let body = ask(&cache, "GET", "http://shop/endless", &[]);
        timeout(MOMENT * 10, body).await.unwrap_err();
    };
    let begins = async {
        tokio::time::sleep(MOMENT * 2).await;
        assert_eq!(ask_all().await, 5);
    };
    tokio::join!(used_up, begins);
    tokio::time::sleep(BOUND * 2).await;
    assert_eq!(ask_all().await, 1);
    assert_eq!(ask_all().await, 0);
}
