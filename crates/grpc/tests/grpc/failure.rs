//! Other statuses than `OK`, and failures of the cache.

use std::time::Duration;

use bellwether::store::StoreErrorKind;
use bellwether::{MemoryStore, WhenStoreFails};
use bellwether_grpc::{CachedMethod, GrpcCacheLayer};
use bellwether_test::faulty::FaultyStore;
use http::Request;
use tokio::time::advance;
use tonic::body::Body;
use tonic::{Code, Response, Status};
use tower::{BoxError, Layer, service_fn};

use crate::catalog::{Answered, Catalog, PRODUCT, Product};
use crate::raw::{Seen, ask, request};
use crate::server::{MINUTE, layer, of};

fn second(answer: Answered) -> Catalog {
    let answer = std::sync::Mutex::new(Some(answer));
    Catalog::counting(move |number| match number {
        1 => answer.lock().unwrap().take().expect("asked once"),
        number => Ok(Response::new(Product::of(number.to_string()))),
    })
}

#[tokio::test]
async fn a_failure_is_not_called_for_again_for_a_while() {
    for code in [2, 4, 8, 10, 13, 14, 15] {
        let catalog = Catalog::counting(move |_| Err(Status::new(Code::from_i32(code), "no")));
        let service = layer().build().unwrap().layer(catalog.clone());
        let seen = [
            ask(&service, request(PRODUCT, "a")).await,
            ask(&service, request(PRODUCT, "a")).await,
            ask(&service, request(PRODUCT, "a")).await,
        ];
        assert_eq!(i64::from(seen[0].grpc_status()), i64::from(code));
        assert_eq!([&seen[0], &seen[1]], [&seen[1], &seen[2]]);
        assert_eq!(catalog.calls(), 2, "{code}");
    }
}

/// Metadata that is not part of the key breaks the call of one caller.
#[tokio::test(start_paused = true)]
async fn metadata_that_breaks_one_call_fails_no_other() {
    for code in [1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 14, 15] {
        let answer = move |request: tonic::Request<crate::catalog::Wanted>| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            match request.metadata().contains_key("x-bad") {
                true => Err(Status::new(Code::from_i32(code), "broken")),
                false => Ok(Response::new(Product::of("good"))),
            }
        };
        let catalog = Catalog::new(answer);
        let service = layer().build().unwrap().layer(catalog.clone());
        let mut asked = Vec::new();
        for nth in 0..48 {
            let service = service.clone();
            let mut request = request(PRODUCT, "a");
            if nth == 0 {
                request.headers_mut().insert("x-bad", "1".parse().unwrap());
            }
            asked.push(tokio::spawn(async move { ask(&service, request).await.grpc_status() }));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for (nth, asked) in asked.into_iter().enumerate() {
            let expected = if nth == 0 { code.cast_unsigned() } else { 0 };
            assert_eq!(asked.await.unwrap(), expected, "caller {nth}");
        }
        assert_eq!(catalog.calls(), 2, "{code}");
    }
}

#[tokio::test]
async fn an_error_of_the_caller_is_not_kept() {
    for code in [1, 3, 5, 6, 7, 9, 11, 12, 16] {
        let catalog = Catalog::counting(move |_| Err(Status::new(Code::from_i32(code), "no")));
        let service = layer().build().unwrap().layer(catalog.clone());
        for calls in 1..4 {
            let seen = ask(&service, request(PRODUCT, "a")).await;
            assert_eq!(i64::from(seen.grpc_status()), i64::from(code));
            assert_eq!(catalog.calls(), calls, "{code}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_named_is_kept_for_its_time() {
    let catalog = Catalog::counting(|_| Err(Status::not_found("no such thing")));
    let method = CachedMethod::fresh_for(MINUTE).status(Code::NotFound, Duration::from_secs(5));
    let service = of(method).build().unwrap().layer(catalog.clone());
    for _ in 0..3 {
        let seen = ask(&service, request(PRODUCT, "a")).await;
        assert_eq!((seen.grpc_status(), seen.ends_with_head), (5, true));
    }
    assert_eq!(catalog.calls(), 1);
    advance(Duration::from_secs(6)).await;
    ask(&service, request(PRODUCT, "a")).await;
    assert_eq!(catalog.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_caller_is_newer_than_a_stale_answer() {
    let method = CachedMethod::fresh_for(MINUTE).stale_if_error(MINUTE);
    let service = of(method).build().unwrap().layer(second(Err(Status::not_found("gone"))));
    ask(&service, request(PRODUCT, "a")).await;
    advance(MINUTE + Duration::from_secs(1)).await;
    assert_eq!(ask(&service, request(PRODUCT, "a")).await.grpc_status(), 5);
    assert_eq!(ask(&service, request(PRODUCT, "a")).await.content(), "2");
}

#[tokio::test(start_paused = true)]
async fn the_server_says_how_long_an_answer_is_good() {
    let catalog = Catalog::counting(|_| {
        let mut response = Response::new(Product::of("short"));
        response.metadata_mut().insert("cache-control", "max-age=5".parse().unwrap());
        Ok(response)
    });
    let service = layer().build().unwrap().layer(catalog.clone());
    ask(&service, request(PRODUCT, "a")).await;
    advance(Duration::from_secs(4)).await;
    ask(&service, request(PRODUCT, "a")).await;
    assert_eq!(catalog.calls(), 1);
    advance(Duration::from_secs(2)).await;
    ask(&service, request(PRODUCT, "a")).await;
    assert_eq!(catalog.calls(), 2);
}

/// What is seen of a service that ends so.
async fn of_service<F, E>(
    layer: GrpcCacheLayer,
    end: impl Fn() -> F + Clone + Send + 'static,
) -> Seen
where
    F: Future<Output = Result<http::Response<Body>, E>> + Send + 'static,
    E: Into<BoxError> + Send + 'static,
{
    let service = layer.layer(service_fn(move |_: Request<Body>| end()));
    let seen = ask(&service, request(PRODUCT, "a")).await;
    assert!(seen.ends_with_head && seen.status == http::StatusCode::OK);
    assert_eq!(seen.headers["content-type"], "application/grpc");
    seen
}

#[tokio::test]
async fn an_error_of_the_service_is_unavailable_and_says_nothing_of_itself() {
    let refused = async || Err(BoxError::from("password: secret"));
    let seen = of_service(layer().build().unwrap(), refused).await;
    assert_eq!(seen.grpc_status(), 14);
    assert!(!format!("{seen:?}").contains("secret"));
}

/// The message of the status that its caller gets.
fn message_of(seen: &Seen) -> String {
    Status::from_header_map(&seen.headers).expect("a status").message().to_owned()
}

#[tokio::test]
async fn a_panic_is_internal() {
    let seen = of_service(layer().build().unwrap(), async || -> Result<_, BoxError> {
        panic!("on purpose")
    })
    .await;
    assert_eq!((seen.grpc_status(), &*message_of(&seen)), (13, "the service failed"));
}

#[tokio::test(start_paused = true)]
async fn a_load_that_takes_too_long_is_a_deadline_that_was_exceeded() {
    let never = async || std::future::pending::<Result<_, BoxError>>().await;
    let seen = of_service(layer().build().unwrap(), never).await;
    assert_eq!((seen.grpc_status(), &*message_of(&seen)), (4, "the answer took too long"));
}

/// An error with a text that tonic would send.
#[tokio::test]
async fn no_text_of_a_connection_to_the_service_reaches_a_caller() {
    let refused = async || {
        let reason = std::io::Error::other("db7.internal").into();
        Err(BoxError::from(tonic::ConnectError(reason)))
    };
    let seen = of_service(layer().build().unwrap(), refused).await;
    assert_eq!((seen.grpc_status(), &*message_of(&seen)), (14, "the service failed"));
}

#[tokio::test]
async fn a_body_that_breaks_off_is_unavailable() {
    let broken = async || {
        let frames = [
            Ok(http_body::Frame::data(bytes::Bytes::from_static(b"\0\0"))),
            Err(std::io::Error::other("broken")),
        ];
        let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
        let response = http::Response::builder().header("content-type", "application/grpc");
        Ok::<_, BoxError>(response.body(Body::new(body)).unwrap())
    };
    let seen = of_service(layer().build().unwrap(), broken).await;
    assert_ne!(seen.grpc_status(), 0);
    assert_eq!(message_of(&seen), "the service failed");
}

#[tokio::test]
async fn a_store_that_fails_is_unavailable_if_the_policy_is_to_fail() {
    let store = FaultyStore::new(MemoryStore::new(10));
    store.on_any().fail(StoreErrorKind::Unreachable);
    let layer = || {
        let method = CachedMethod::fresh_for(MINUTE);
        GrpcCacheLayer::builder(store.clone()).method(PRODUCT, method)
    };
    let failing = layer().when_store_fails(WhenStoreFails::Fail).build().unwrap();
    let seen = ask(&failing.layer(Catalog::numbered()), request(PRODUCT, "a")).await;
    assert_eq!(seen.grpc_status(), 14);
    let seen =
        ask(&layer().build().unwrap().layer(Catalog::numbered()), request(PRODUCT, "a")).await;
    assert_eq!(seen.content(), "0");
}
