//! What a key folds reaches the handler in one form, and what it cannot tell apart bypasses the cache.

use std::convert::Infallible;

use bellwether_grpc::CachedMethod;
use bytes::Bytes;
use futures_util::stream;
use http::Request;
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use prost::Message;
use tonic::body::Body;
use tonic::{Response, Status};
use tower::{Layer, ServiceExt};

use crate::catalog::{Catalog, PRODUCT, Product, Wanted};
use crate::raw::{Seen, ask, request, with};
use crate::server::{MINUTE, layer, of};

fn wanted(what: &str) -> Vec<u8> {
    Wanted { what: what.to_owned() }.encode_to_vec()
}

/// The specification has servers accept padded and unpadded values, and values joined by commas.
#[tokio::test]
async fn binary_metadata_is_one_key_however_it_is_written() {
    let one: &[&[_]] = &[&[("x-id-bin", "YQ==")], &[("x-id-bin", "YQ")], &[("x-id-bin", "YQ=")]];
    let two: &[&[_]] = &[
        &[("x-id-bin", "YQ"), ("x-id-bin", "YmI")],
        &[("x-id-bin", "YQ==,YmI=")],
        &[("x-id-bin", "YQ , YmI=")],
    ];
    for ways in [one, two] {
        for invalidated in ways {
            let layer = of(CachedMethod::fresh_for(MINUTE).metadata("x-id-bin")).build().unwrap();
            let cache = layer.handle();
            let service = layer.layer(Catalog::numbered());
            for fields in ways {
                let seen = ask(&service, with(request(PRODUCT, "a"), fields)).await;
                assert_eq!(seen.content(), "0", "{fields:?}");
            }
            let call = cache.call(PRODUCT, wanted("a"));
            let call =
                invalidated.iter().fold(call, |call, (name, value)| call.metadata(name, value));
            assert!(cache.invalidate(&call.build().unwrap()).await.unwrap());
            for fields in ways {
                let seen = ask(&service, with(request(PRODUCT, "a"), fields)).await;
                assert_eq!(seen.content(), "1", "{fields:?} after {invalidated:?}");
            }
        }
    }
}

/// What the handler sees of a request: its URI, and its metadata by name.
async fn seen_by_handler(method: CachedMethod, request: Request<Full<Bytes>>) -> Vec<String> {
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let behind = tower::service_fn(move |request: Request<Body>| {
        let fields = request.headers().iter().map(|(name, value)| format!("{name}: {value:?}"));
        let mut seen: Vec<_> = fields.chain([request.uri().to_string()]).collect();
        seen.sort();
        send.send(seen).expect("a receiver");
        std::future::ready(Ok::<_, Infallible>(Status::not_found("none").into_http::<Body>()))
    });
    ask(&of(method).build().unwrap().layer(behind), request).await;
    receive.recv().await.expect("a call")
}

#[tokio::test]
async fn the_handler_does_not_see_how_a_client_writes_what_the_key_folds() {
    let method = || CachedMethod::fresh_for(MINUTE).metadata("x-id-bin").authority();
    let at = |host: &str, fields: &[_]| {
        let mut request = with(request(PRODUCT, "a"), fields);
        *request.uri_mut() = format!("http://{host}{PRODUCT}").parse().unwrap();
        request
    };
    let same = [
        at("a.example", &[("x-id-bin", "YQ"), ("grpc-accept-encoding", "gzip")]),
        at("A.Example:80", &[("x-id-bin", "YQ=="), ("grpc-accept-encoding", "br, gzip")]),
        at("a.example", &[("grpc-accept-encoding", "identity,gzip"), ("x-id-bin", "YQ")]),
        at("a.example", &[("x-id-bin", "YQ"), ("grpc-accept-encoding", "gzip,gzip")]),
        at(
            "a.example",
            &[("x-id-bin", "YQ"), ("grpc-accept-encoding", "gzip"), ("grpc-encoding", "br")],
        ),
        at(
            "a.example",
            &[("x-id-bin", "YQ"), ("grpc-accept-encoding", "gzip"), ("grpc-timeout", "9S")],
        ),
    ];
    let seen = seen_by_handler(method(), same[0].clone()).await;
    assert!(seen.contains(&format!("http://a.example{PRODUCT}")), "{seen:?}");
    for mut request in same.into_iter().skip(1) {
        request.headers_mut().insert("content-type", "application/grpc+proto".parse().unwrap());
        request.headers_mut().remove("te");
        let sent = format!("{request:?}");
        assert_eq!(seen_by_handler(method(), request).await, seen, "{sent}");
    }
    let host = |host| at("a.example", &[("x-id-bin", "YQ"), ("host", host)]);
    let seen = seen_by_handler(method(), host("a.example")).await;
    assert_eq!(seen_by_handler(method(), host("A.example:443")).await, seen);
}

/// A flag that no honest client sends made an error for the key of an honest message, and a cooldown.
#[tokio::test]
async fn a_forged_compression_flag_denies_no_honest_call() {
    let forged = [(1, None), (1, Some("gzip, br")), (2, Some("gzip")), (2, None), (255, None)];
    for (flag, encoding) in forged {
        let method = CachedMethod::fresh_for(MINUTE);
        let service = of(method).build().unwrap().layer(Catalog::numbered());
        for _ in 0..4 {
            let mut message = [0, 0, 0, 0, 0].to_vec();
            message.extend(wanted("a"));
            (message[0], message[4]) = (flag, u8::try_from(message.len() - 5).unwrap());
            let mut sent = request(PRODUCT, "").map(|_| Full::new(message.into()));
            for encoding in encoding.into_iter().flat_map(|encodings| encodings.split(", ")) {
                sent.headers_mut().append("grpc-encoding", encoding.parse().unwrap());
            }
            assert_ne!(ask(&service, sent).await.grpc_status(), 0, "{flag} {encoding:?}");
        }
        let honest = ask(&service, request(PRODUCT, "a")).await;
        assert_eq!(honest.content(), "0", "{flag} {encoding:?}");
    }
}

/// A client may name an encoding, and send short messages uncompressed.
#[tokio::test]
async fn an_encoding_that_no_message_has_does_not_reach_the_handler() {
    let catalog = Catalog::numbered();
    let service = layer().build().unwrap().layer(catalog.clone());
    for encoding in ["br", "gzip"] {
        let seen = ask(&service, with(request(PRODUCT, "a"), &[("grpc-encoding", encoding)])).await;
        assert_eq!(seen.content(), "0", "{encoding}");
    }
    assert_eq!(catalog.calls(), 1);
}

#[tokio::test]
async fn a_query_and_trailers_of_a_request_bypass_the_cache() {
    let catalog = Catalog::counting(|_| Ok(Response::new(Product::of("same"))));
    let service = layer().build().unwrap().layer(catalog.clone());
    ask(&service, request(PRODUCT, "a")).await;
    for query in ["?a=1", "?"] {
        let mut request = request(PRODUCT, "a");
        *request.uri_mut() = format!("http://localhost{PRODUCT}{query}").parse().unwrap();
        assert_eq!(ask(&service, request).await.content(), "same");
    }
    assert_eq!(catalog.calls(), 3);
    let trailers = http::HeaderMap::from_iter([("x-a".parse().unwrap(), "1".parse().unwrap())]);
    let frames =
        [Frame::data(crate::raw::framed(&Wanted { what: "a".into() })), Frame::trailers(trailers)];
    let body = StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)));
    let answered = service.oneshot(request(PRODUCT, "").map(|_| body)).await.unwrap();
    assert_eq!(Seen::of(answered).await.content(), "same");
    assert_eq!(catalog.calls(), 4);
}
