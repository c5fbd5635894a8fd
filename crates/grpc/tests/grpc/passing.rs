//! Requests that bypass the cache, and answers that pass through.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bellwether_grpc::CachedMethod;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::{Response, Status};
use tower::{Layer, ServiceExt};

use crate::catalog::{CHANGES, Catalog, PRODUCT, Product, RAW, Wanted};
use crate::raw::{Connection, Seen, ask, framed, request, with};
use crate::server::{MINUTE, layer, layered, plain};

type Changes = mpsc::Sender<Result<Product, Status>>;

/// A catalog with one stream of changes, that the test sends.
fn changing() -> (Catalog, Changes) {
    let (send, receive) = mpsc::channel(1);
    let receive = std::sync::Mutex::new(Some(receive));
    let catalog = Catalog::numbered().streaming(move || {
        ReceiverStream::new(receive.lock().unwrap().take().expect("one stream")).boxed()
    });
    (catalog, send)
}

/// Reads a stream of a thousand changes of which none is sent before the last was received.
async fn each_is_received_before_the_next_is_sent(connection: &Connection, changes: Changes) {
    // The method was named, so the head of the stream comes with its first message.
    let of = |number| Product::of(format!("{number:04}"));
    changes.send(Ok(of(0))).await.expect("room for one");
    let mut body = connection.send(request(CHANGES, "")).await.into_body();
    for number in 0..1_000 {
        let product = of(number);
        if number > 0 {
            changes.send(Ok(product.clone())).await.expect("a receiver");
        }
        let frame = body.frame().await.expect("a frame").expect("no error");
        assert_eq!(frame.into_data().expect("data"), framed(&product));
    }
    drop(changes);
    let trailers = body.frame().await.expect("a frame").expect("no error").into_trailers();
    assert_eq!(trailers.expect("trailers")["grpc-status"], "0");
}

#[tokio::test]
async fn no_message_of_a_stream_is_held_back() {
    let (catalog, changes) = changing();
    let cached = Connection::to(layered(catalog, layer().build().unwrap()).await).await;
    each_is_received_before_the_next_is_sent(&cached, changes).await;
}

/// Its method was named by mistake.
#[tokio::test]
async fn no_message_of_a_stream_of_a_method_that_was_named_is_held_back() {
    let (catalog, changes) = changing();
    let named = layer().method(CHANGES, CachedMethod::fresh_for(MINUTE)).build().unwrap();
    let cached = Connection::to(layered(catalog, named).await).await;
    each_is_received_before_the_next_is_sent(&cached, changes).await;
}

type Frames = mpsc::Sender<Result<Frame<Bytes>, Status>>;

/// A catalog with raw answers that the test sends through these channels, in turn.
fn sending(answers: usize) -> (Catalog, Vec<Frames>) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..answers).map(|_| mpsc::channel(8)).unzip();
    let receivers = std::sync::Mutex::new(receivers.into_iter());
    let catalog = Catalog::numbered().raw(move || {
        let frames = receivers.lock().unwrap().next().expect("no more answers than these");
        let response = http::Response::builder().header("content-type", "application/grpc");
        response.body(Body::new(StreamBody::new(ReceiverStream::new(frames)))).unwrap()
    });
    (catalog, senders)
}

fn message() -> Frame<Bytes> {
    Frame::data(Bytes::from_static(b"\0\0\0\0\x04\x0a\x02ab"))
}

fn trailers() -> Frame<Bytes> {
    let status = [("grpc-status".parse().unwrap(), "0".parse().unwrap())];
    Frame::trailers(http::HeaderMap::from_iter(status))
}

async fn next(
    body: &mut (impl http_body::Body<Data = Bytes, Error: std::fmt::Debug> + Unpin),
) -> Frame<Bytes> {
    body.frame().await.expect("a frame").expect("no error")
}

/// The origin may send its message and its trailers apart.
#[tokio::test(start_paused = true)]
async fn a_message_whose_trailers_come_a_moment_later_is_kept_with_them() {
    let (catalog, senders) = sending(1);
    let service = layer().build().unwrap().layer(catalog.clone());
    let sends = async move {
        senders[0].send(Ok(message())).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        senders[0].send(Ok(trailers())).await.unwrap();
    };
    let (first, ()) = tokio::join!(ask(&service, request(RAW, "")), sends);
    let second = ask(&service, request(RAW, "")).await;
    assert_eq!((first.content().as_str(), second.content().as_str()), ("ab", "ab"));
    assert_eq!((second.grpc_status(), catalog.calls()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_not_ended_by_the_time_that_a_load_may_take() {
    let (catalog, senders) = sending(1);
    let service = layer().load_timeout(Duration::from_secs(1)).build().unwrap().layer(catalog);
    senders[0].send(Ok(message())).await.unwrap();
    let mut body = service.oneshot(request(RAW, "")).await.unwrap().into_body();
    next(&mut body).await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        senders[0].send(Ok(message())).await.unwrap();
        assert_eq!(next(&mut body).await.into_data().unwrap(), message().into_data().unwrap());
    }
    senders[0].send(Err(Status::aborted("broken"))).await.unwrap();
    assert!(body.frame().await.expect("word of it").is_err());
}

/// Its method was named by mistake: the caller sends its next message when it has the answer to the first.
#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_for_an_answer_before_it_sends_more_gets_one() {
    let (catalog, senders) = sending(1);
    let service = layer().build().unwrap().layer(catalog);
    let asks = stream::iter([Ok::<_, Status>(message())]).chain(stream::pending());
    senders[0].send(Ok(message())).await.unwrap();
    let answered = service.oneshot(request(RAW, "").map(|_| StreamBody::new(asks)));
    let answered = tokio::time::timeout(MINUTE, answered).await.expect("an answer").unwrap();
    assert_eq!(
        next(&mut answered.into_body()).await.into_data().unwrap(),
        message().into_data().unwrap()
    );
}

/// Concurrent callers of a stream wait for a moment, and then each gets its own stream.
#[tokio::test(start_paused = true)]
async fn callers_of_one_stream_do_not_wait_for_its_end() {
    let (catalog, senders) = sending(3);
    let service = layer().build().unwrap().layer(catalog.clone());
    for sender in &senders {
        sender.send(Ok(message())).await.unwrap();
    }
    let asked = (0..3).map(|_| service.clone().oneshot(request(RAW, "")));
    let began = tokio::time::Instant::now();
    for answer in futures_util::future::join_all(asked).await {
        let mut body = answer.unwrap().into_body();
        assert_eq!(next(&mut body).await.into_data().unwrap(), message().into_data().unwrap());
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(catalog.calls(), 3);
}

#[tokio::test]
async fn methods_that_were_not_named_are_called_each_time() {
    let catalog = Catalog::numbered();
    let service = layer().build().unwrap().layer(catalog.clone());
    for _ in 0..3 {
        let seen = ask(&service, request("/catalog.Catalog/Other", "a")).await;
        assert_eq!(seen.grpc_status(), 12);
    }
    assert_eq!(catalog.calls(), 3);
}

/// Its method was named by mistake.
#[tokio::test]
async fn a_stream_of_a_method_that_was_named_goes_through_whole() {
    let messages = || {
        let numbers = stream::iter(0..1_000);
        numbers.map(|number: u32| Ok(Product::of(number.to_string()))).boxed()
    };
    let catalog = Catalog::numbered().streaming(messages);
    let plain = Connection::to(plain(catalog.clone()).await).await;
    let expected = plain.call(request(CHANGES, "")).await;
    let named = layer().method(CHANGES, CachedMethod::fresh_for(MINUTE)).build().unwrap();
    let cached = Connection::to(layered(catalog.clone(), named).await).await;
    for _ in 0..2 {
        assert_eq!(cached.call(request(CHANGES, "")).await, expected);
    }
    assert_eq!(catalog.calls(), 3);
}

#[tokio::test]
async fn an_answer_that_is_too_large_goes_through_whole_and_is_not_kept() {
    let catalog = Catalog::counting(|_| Ok(Response::new(Product::of(vec![b'a'; 100_000]))));
    let plain = Connection::to(plain(catalog.clone()).await).await;
    let expected = plain.call(request(PRODUCT, "a")).await;
    let small = layer().max_entry_bytes(50_000).build().unwrap();
    let cached = Connection::to(layered(catalog.clone(), small).await).await;
    for _ in 0..3 {
        assert_eq!(cached.call(request(PRODUCT, "a")).await, expected);
    }
    assert_eq!(catalog.calls(), 4);
}

/// The first frame of an answer that is too large is there before its end is.
#[tokio::test]
async fn an_answer_that_says_to_be_too_large_is_not_held_back() {
    let (send, receive) = mpsc::channel::<Result<_, Status>>(1);
    let receive = std::sync::Mutex::new(Some(receive));
    let catalog = Catalog::numbered().raw(move || {
        let frames = ReceiverStream::new(receive.lock().unwrap().take().expect("one answer"));
        let response = http::Response::builder().header("content-type", "application/grpc");
        response.body(Body::new(StreamBody::new(frames))).unwrap()
    });
    let service = layer().build().unwrap().layer(catalog);
    let first = Bytes::from_static(b"\0\x7f\0\0\0first");
    send.send(Ok(Frame::data(first.clone()))).await.unwrap();
    let mut body = service.oneshot(request(RAW, "")).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), first);
    drop(send);
    assert!(body.frame().await.is_none());
}

/// What a catalog is given of a request.
async fn received(
    layer: bellwether_grpc::GrpcCacheLayer,
    request: Request<Full<Bytes>>,
) -> Vec<Seen> {
    let behind = tower::service_fn(async |request: Request<Body>| {
        let (parts, body) = request.into_parts();
        let mut echo = http::Response::new(body);
        *echo.headers_mut() = parts.headers;
        Ok::<_, std::convert::Infallible>(echo)
    });
    let cached = layer.layer(behind);
    vec![
        ask(&cached, request.clone()).await,
        ask(&behind.map_request(|r: Request<Full<Bytes>>| r.map(Body::new)), request).await,
    ]
}

#[tokio::test]
async fn requests_that_are_not_one_message_go_through_whole() {
    let one = framed(&Wanted { what: "a".into() });
    let bodies = [
        Bytes::new(),
        Bytes::from_static(b"\0\0"),
        one.slice(..one.len() - 1),
        [&one[..], &one[..]].concat().into(),
        [&one[..], b"\0"].concat().into(),
        framed(&Wanted { what: "a".repeat(2_000) }),
    ];
    for body in bodies {
        let small = layer().max_request_bytes(1_000).build().unwrap();
        let request = request(PRODUCT, "").map(|_| Full::new(body.clone()));
        let seen = received(small, request).await;
        assert_eq!(seen[0], seen[1]);
        assert_eq!(seen[0].data, body);
    }
}

#[tokio::test]
async fn a_request_of_four_mebibytes_is_cached_and_a_larger_one_is_not() {
    let catalog = Catalog::numbered();
    let service = layer().build().unwrap().layer(catalog.clone());
    // Of a message, a tag and a length are 5 bytes.
    let of_length = |length: usize| request(PRODUCT, &"a".repeat(length - 5));
    for _ in 0..2 {
        assert_eq!(ask(&service, of_length(4 << 20)).await.content(), "0");
    }
    assert_eq!(catalog.calls(), 1);
    for _ in 0..2 {
        // It is tonic's own limit too.
        assert_eq!(ask(&service, of_length((4 << 20) + 1)).await.grpc_status(), 11);
    }
    assert_eq!(catalog.calls(), 3);
}

#[tokio::test]
async fn what_is_not_protobuf_over_grpc_goes_past_the_cache() {
    for other in ["application/grpc-web+proto", "application/grpc+json", "application/json"] {
        let catalog = Catalog::numbered();
        let service = layer().build().unwrap().layer(catalog.clone());
        for _ in 0..2 {
            let mut request = request(PRODUCT, "a");
            request.headers_mut().insert("content-type", other.parse().unwrap());
            ask(&service, request).await;
        }
        assert_eq!(catalog.calls(), 2, "{other}");
    }
}

#[tokio::test]
async fn compressed_requests_go_past_the_cache() {
    // `a` in a message, by gzip.
    let compressed: &[u8] =
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xe3\x62\x4c\x04\x00\x4b\x3c\x78\xd1\x03\x00\x00\x00";
    let length = u8::try_from(compressed.len()).unwrap();
    let body = Bytes::from([&[1, 0, 0, 0, length], compressed].concat());
    let catalog = Catalog::numbered();
    let service = layer().build().unwrap().layer(catalog.clone());
    for _ in 0..3 {
        let request = with(request(PRODUCT, ""), &[("grpc-encoding", "gzip")]);
        let seen = ask(&service, request.map(|_| Full::new(body.clone()))).await;
        assert_eq!(seen.grpc_status(), 0);
    }
    assert_eq!(catalog.calls(), 3);
}

#[tokio::test]
async fn a_request_that_breaks_off_makes_no_call() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let behind = tower::service_fn(move |_: Request<Body>| {
        counter.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty())))
    });
    let broken = [Ok(Frame::data(Bytes::from_static(b"\0\0"))), Err(Status::aborted("broken"))];
    let body = StreamBody::new(stream::iter(broken));
    let answered =
        layer().build().unwrap().layer(behind).oneshot(request(PRODUCT, "").map(|_| body)).await;
    assert_eq!(Seen::of(answered.unwrap()).await.grpc_status(), 1);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}
