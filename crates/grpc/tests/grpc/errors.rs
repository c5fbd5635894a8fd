//! Answers with errors, and unusual ones, are the same from the store and from the origin.

use bellwether_grpc::{CachedMethod, GrpcCacheLayer};
use bellwether_redis::RedisStore;
use bellwether_testkit::servers::RedisServer;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use http_body_util::StreamBody;
use tonic::body::Body;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};
use tower::{Layer, ServiceExt};

use crate::catalog::{Catalog, PRODUCT, RAW};
use crate::raw::{Connection, Seen, request, with};
use crate::server::{MINUTE, layered, of, plain};

fn keeping_errors() -> CachedMethod {
    let kept = CachedMethod::fresh_for(MINUTE);
    (1..=16).fold(kept, |kept, code| kept.status(Code::from_i32(code), MINUTE))
}

/// What there is to see of an answer, with its fields in the order in which they came.
type Wire = (u16, Vec<(String, Vec<u8>)>, Bytes, Option<Vec<(String, Vec<u8>)>>, bool);

fn wire(seen: &Seen) -> Wire {
    let lines = |fields: &HeaderMap| {
        let lines = fields.iter().map(|(name, value)| (name.to_string(), value.as_bytes().into()));
        lines.collect::<Vec<_>>()
    };
    let trailers = seen.trailers.as_ref().map(lines);
    (seen.status.as_u16(), lines(&seen.headers), seen.data.clone(), trailers, seen.ends_with_head)
}

/// Calls the origin once, and two layers over one store three times each. The second layer reads what
/// the first one has stored.
async fn is_kept_as_it_is(origin: &Catalog, method: &str, fields: &[(&'static str, &'static str)]) {
    let redis = RedisServer::start();
    let request = || with(request(method, "detailed"), fields);
    let itself = Connection::to(plain(origin.clone()).await).await;
    let expected = wire(&itself.call(request()).await);
    let before = origin.calls();
    for _ in 0..2 {
        let store = RedisStore::connect(&redis.url(), "test").await.expect("a store");
        let layer = GrpcCacheLayer::builder(store)
            .method(PRODUCT, keeping_errors())
            .method(RAW, keeping_errors())
            .build()
            .expect("options");
        let cached = Connection::to(layered(origin.clone(), layer).await).await;
        for _ in 0..3 {
            assert_eq!(wire(&cached.call(request()).await), expected);
        }
    }
    assert_eq!(origin.calls() - before, 1);
    let cached =
        Connection::to(layered(origin.clone(), of(keeping_errors()).build().unwrap()).await).await;
    for _ in 0..3 {
        assert_eq!(wire(&cached.call(request()).await), expected);
    }
    assert_eq!(origin.calls() - before, 2);
}

fn metadata() -> MetadataMap {
    let mut metadata = MetadataMap::new();
    metadata.append("x-note", MetadataValue::from_static("one"));
    metadata.insert_bin("x-e-bin", MetadataValue::from_bytes(&(0..=255).collect::<Vec<u8>>()));
    metadata.append("x-note", MetadataValue::from_static("two"));
    metadata.append_bin("x-e-bin", MetadataValue::from_bytes(b"\0"));
    metadata.append_bin("x-e-bin", MetadataValue::from_bytes(b""));
    metadata
}

#[tokio::test]
async fn an_error_that_is_kept_has_its_message_details_and_metadata_to_the_byte() {
    let said = ["none of it: \u{fc}, 100 %\n", "", "plain", "%41 \u{0}\u{7f}"];
    for (said, details) in said.into_iter().zip([&b"\0\xff details"[..], b"", b"d", b"\n"]) {
        let status = move || {
            let details = Bytes::from_static(details);
            Status::with_details_and_metadata(Code::NotFound, said, details, metadata())
        };
        let origin = Catalog::counting(move |_| Err(status()));
        is_kept_as_it_is(&origin, PRODUCT, &[]).await;
        is_kept_as_it_is(&origin, PRODUCT, &[("grpc-accept-encoding", "gzip")]).await;
    }
}

/// Middleware above a service may go by the status that tonic leaves in the extensions.
#[tokio::test]
async fn an_error_that_is_kept_has_its_status_in_its_extensions() {
    let origin = Catalog::counting(move |_| {
        let details = Bytes::from_static(b"details");
        Err(Status::with_details_and_metadata(Code::NotFound, "none", details, metadata()))
    });
    let service = of(keeping_errors()).build().unwrap().layer(origin.clone());
    for _ in 0..2 {
        let answer = service.clone().oneshot(request(PRODUCT, "a")).await.unwrap();
        let status = answer.extensions().get::<Status>().expect("a status");
        assert_eq!((status.code(), status.message()), (Code::NotFound, "none"));
        assert_eq!(status.details(), b"details");
        assert_eq!(status.metadata().clone().into_headers(), metadata().into_headers());
    }
    assert_eq!(origin.calls(), 1);
}

type Fields = &'static [(&'static str, &'static str)];

/// An answer that is all this, whatever tonic would make of it.
fn answer(
    head: Fields,
    data: &'static [&'static [u8]],
    trailers: Option<Fields>,
) -> http::Response<Body> {
    let map = |fields: Fields| {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    };
    let frames = data.iter().map(|data| Frame::data(Bytes::from_static(data)));
    let frames: Vec<_> =
        frames.chain(trailers.map(map).map(Frame::trailers)).map(Ok::<_, Status>).collect();
    let body = match frames.is_empty() {
        true => Body::empty(),
        false => Body::new(StreamBody::new(stream::iter(frames))),
    };
    let mut response = http::Response::new(body);
    *response.headers_mut() = map(head);
    response
}

const GRPC: (&str, &str) = ("content-type", "application/grpc");

#[tokio::test]
async fn a_head_alone_is_kept_as_a_head_alone() {
    let heads: [Fields; 4] = [
        &[GRPC, ("grpc-status", "5")],
        &[
            ("grpc-status", "5"),
            ("x-note", "one"),
            ("content-type", "application/grpc+proto"),
            ("grpc-status-details-bin", "CAUSBG5vbmU"),
            ("x-e-bin", "AAE="),
            ("x-note", "two"),
            ("x-e-bin", "AAE"),
            ("grpc-message", "a%20b%E4%BD%A0 %zz"),
            ("x-note", "one"),
            ("x-e-bin", ""),
        ],
        &[GRPC, ("grpc-status", "05"), ("grpc-status", "0")],
        &[GRPC, ("grpc-status", "5"), ("content-length", "0"), ("trailer", "x"), ("age", "7")],
    ];
    for head in heads {
        let origin = Catalog::numbered().raw(move || answer(head, &[], None));
        is_kept_as_it_is(&origin, RAW, &[]).await;
    }
}

#[tokio::test]
async fn an_error_with_trailers_keeps_them_apart_from_its_head() {
    let head: Fields = &[GRPC, ("x-e-bin", "AA"), ("grpc-encoding", "gzip"), ("x-note", "head")];
    let trailers: Fields = &[
        ("x-note", "one"),
        ("grpc-status", "5"),
        ("grpc-status-details-bin", "CAUSBG5vbmU"),
        ("x-e-bin", "AAE="),
        ("x-note", "two"),
        ("x-e-bin", "AAE"),
        ("grpc-message", "none"),
    ];
    let whole: &[&[u8]] = &[b"\0\0", b"\0\0\x04\x0a", b"\x02ab"];
    let empty: &[&[u8]] = &[b"\0\0\0\0\0"];
    let compressed: &[&[u8]] = &[b"\x01\0\0\0\x04\x1f\x8b\x08\0"];
    for data in [&[], whole, empty, compressed] {
        let origin = Catalog::numbered().raw(move || answer(head, data, Some(trailers)));
        is_kept_as_it_is(&origin, RAW, &[("grpc-accept-encoding", "gzip")]).await;
    }
}

#[tokio::test]
async fn an_empty_message_is_kept_as_one() {
    let trailers: Fields = &[("grpc-status", "0"), ("x-e-bin", "AA"), ("x-e-bin", "AQ")];
    let origin = Catalog::numbered().raw(move || answer(&[GRPC], &[b"\0\0\0\0\0"], Some(trailers)));
    is_kept_as_it_is(&origin, RAW, &[]).await;
}

/// This is not a valid answer to a unary call. Its caller gets it unchanged.
#[tokio::test]
async fn a_success_without_a_message_is_given_as_it_is_and_not_kept() {
    let trailers: Fields = &[("grpc-status", "0"), ("x-e-bin", "AA")];
    let answers: [(Fields, Option<Fields>); 2] =
        [(&[GRPC, ("grpc-status", "0")], None), (&[GRPC], Some(trailers))];
    for (head, trailers) in answers {
        let origin = Catalog::numbered().raw(move || answer(head, &[], trailers));
        let itself = Connection::to(plain(origin.clone()).await).await;
        let expected = wire(&itself.call(request(RAW, "")).await);
        let cached =
            Connection::to(layered(origin.clone(), of(keeping_errors()).build().unwrap()).await)
                .await;
        assert_eq!(wire(&cached.call(request(RAW, "")).await), expected);
    }
}
