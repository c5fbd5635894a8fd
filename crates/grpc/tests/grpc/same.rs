//! Answers are the same with and without the cache, byte for byte.

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use tonic::body::Body;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Request, Response, Status};

use crate::catalog::{Answered, Catalog, PRODUCT, Product, RAW, Wanted};
use crate::raw::{Connection, Seen, request, with};
use crate::server::{layer, layered, plain, wrapped};

/// Bytes that no compression makes much of.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..length).map(next).collect()
}

fn metadata() -> MetadataMap {
    let mut metadata = MetadataMap::new();
    metadata.append("x-note", MetadataValue::from_static("one"));
    metadata.append("x-note", MetadataValue::from_static("two"));
    let all_bytes: Vec<u8> = (0..=255).collect();
    metadata.insert_bin("x-data-bin", MetadataValue::from_bytes(&all_bytes));
    metadata
}

fn answer(asked: &Wanted) -> Answered {
    let mut response = match &*asked.what {
        "plain" | "binary" => Response::new(Product::of("plain")),
        "empty" => Response::new(Product::default()),
        "text" => Response::new(Product::of("text ".repeat(10_000))),
        "large" => Response::new(Product::of(noise(4 << 20))),
        "detailed" => {
            let details = Bytes::from_static(b"\0\xff details");
            let said = "none of it: \u{fc}, 100 %\n";
            return Err(Status::with_details_and_metadata(
                Code::NotFound,
                said,
                details,
                metadata(),
            ));
        }
        number => {
            let code = Code::from_i32(number.parse().expect("a code"));
            return Err(Status::new(code, "no"));
        }
    };
    if asked.what == "binary" {
        *response.metadata_mut() = metadata();
    }
    Ok(response)
}

fn catalog() -> Catalog {
    Catalog::new(|asked: Request<Wanted>| std::future::ready(answer(asked.get_ref())))
}

/// What a caller sees without the layer, and three times with it.
async fn seen(what: &str, fields: &[(&'static str, &'static str)]) -> (Seen, [Seen; 3], usize) {
    let behind = catalog();
    let plain = Connection::to(plain(catalog()).await).await;
    let cached = Connection::to(layered(behind.clone(), layer().build().unwrap()).await).await;
    let request = || with(request(PRODUCT, what), fields);
    let with_layer =
        [cached.call(request()).await, cached.call(request()).await, cached.call(request()).await];
    (plain.call(request()).await, with_layer, behind.calls())
}

async fn is_kept_as_it_is(what: &str, fields: &[(&'static str, &'static str)]) -> Seen {
    let (expected, given, calls) = seen(what, fields).await;
    for (at, given) in given.iter().enumerate() {
        assert_eq!((given.data.len(), &given.headers), (expected.data.len(), &expected.headers));
        assert!(*given == expected, "{what}: answer {at} is another");
    }
    assert_eq!(calls, 1, "{what}");
    expected
}

#[tokio::test]
async fn an_answer_that_is_kept_is_the_same_to_the_byte() {
    for what in ["plain", "empty", "text"] {
        let seen = is_kept_as_it_is(what, &[]).await;
        assert_eq!(seen.grpc_status(), 0);
    }
}

#[tokio::test]
async fn metadata_is_kept_with_its_order_and_its_bytes() {
    let seen = is_kept_as_it_is("binary", &[]).await;
    assert_eq!(seen.headers.get_all("x-note").iter().collect::<Vec<_>>(), ["one", "two"]);
    assert!(seen.headers["x-data-bin"].len() > 300);
}

#[tokio::test]
async fn four_mebibytes_are_kept_as_they_are() {
    let seen = is_kept_as_it_is("large", &[]).await;
    assert!(seen.data.len() > 4 << 20);
}

#[tokio::test]
async fn a_compressed_answer_stays_compressed_for_callers_that_accept_it() {
    let accepting = [("grpc-accept-encoding", "identity,gzip")];
    let compressed = is_kept_as_it_is("text", &accepting).await;
    assert_eq!(compressed.headers["grpc-encoding"], "gzip");
    assert!(compressed.data[0] == 1 && compressed.data.len() < 1_000);

    let behind = catalog();
    let cached = Connection::to(layered(behind, layer().build().unwrap()).await).await;
    let first = cached.call(with(request(PRODUCT, "text"), &accepting)).await;
    assert!(first == compressed);
    let other = cached.call(request(PRODUCT, "text")).await;
    assert_eq!((other.data[0], other.headers.get("grpc-encoding")), (0, None));
}

#[tokio::test]
async fn an_error_is_the_same_to_the_byte_and_is_the_head_alone() {
    let (expected, given, _) = seen("detailed", &[]).await;
    assert!(expected.ends_with_head && expected.headers.contains_key("grpc-status-details-bin"));
    assert!(given.iter().all(|given| *given == expected), "{given:?} is not {expected:?}");
    for code in 1..=16 {
        let (expected, given, _) = seen(&code.to_string(), &[]).await;
        assert_eq!(expected.grpc_status(), code);
        assert!(given.iter().all(|given| *given == expected), "{given:?} is not {expected:?}");
    }
}

/// An answer that tonic would not make: several frames, trailers of its own.
fn odd(status: &'static str, data: &'static [&'static [u8]]) -> http::Response<Body> {
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static(status));
    trailers.insert("x-late-bin", http::HeaderValue::from_static("AAH/"));
    trailers.append("x-late", http::HeaderValue::from_static("one"));
    trailers.append("x-late", http::HeaderValue::from_static("two"));
    let frames = data.iter().map(|data| Frame::data(Bytes::from_static(data)));
    let frames: Vec<_> = frames.chain([Frame::trailers(trailers)]).map(Ok::<_, Status>).collect();
    let response = http::Response::builder().header("content-type", "application/grpc");
    response.body(Body::new(StreamBody::new(stream::iter(frames)))).expect("a response")
}

#[tokio::test]
async fn trailers_and_messages_in_pieces_are_the_same_to_the_byte() {
    let whole: &[&[u8]] = &[b"\0\0", b"\0\0\x04\x0a", b"\x02ab"];
    let odds = [("0", whole, 1), ("5", &[], 3), ("13", whole, 2), ("0", &[b"\0\0\0\0\x09a"], 2)];
    for (status, data, calls) in odds {
        let behind = catalog().raw(move || odd(status, data));
        let plain = Connection::to(plain(behind.clone()).await).await;
        let expected = plain.call(request(RAW, "")).await;
        assert_eq!(expected.trailers.as_ref().unwrap().len(), 4);
        let before = behind.calls();
        let cached = Connection::to(layered(behind.clone(), layer().build().unwrap()).await).await;
        for _ in 0..3 {
            let given = cached.call(request(RAW, "")).await;
            assert_eq!(given, expected, "{status} {data:?}");
        }
        assert_eq!(behind.calls() - before, calls, "{status} {data:?}");
    }
}

#[tokio::test]
async fn a_layer_around_one_service_changes_no_byte() {
    let behind = catalog();
    let plain = Connection::to(plain(catalog()).await).await;
    let cached = Connection::to(wrapped(behind.clone(), layer().build().unwrap()).await).await;
    let expected = plain.call(request(PRODUCT, "binary")).await;
    for _ in 0..2 {
        assert_eq!(cached.call(request(PRODUCT, "binary")).await, expected);
    }
    assert_eq!(behind.calls(), 1);
}
