//! Which answers are shared, and with which callers.

use std::sync::Arc;

use bellwether::MemoryStore;
use bellwether_grpc::{CachedMethod, GrpcCacheLayer};
use futures_util::future::join_all;
use prost::Message;
use tokio::sync::Semaphore;
use tonic::service::interceptor::InterceptedService;
use tonic::{Code, Request, Response, Status};
use tower::Layer;

use crate::catalog::{Catalog, PRODUCT, Product, Wanted};
use crate::raw::{Connection, ask, request, with};
use crate::server::{MINUTE, layer, layered, of};

/// A catalog that waits for a permit of a semaphore before each answer.
fn gated() -> (Catalog, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let entry = Arc::clone(&gate);
    let catalog = Catalog::new(move |_| {
        let gate = Arc::clone(&entry);
        async move {
            gate.acquire().await.expect("a gate").forget();
            Ok(Response::new(Product::of("slow")))
        }
    });
    (catalog, gate)
}

/// The interoperability test of gRPC by this name: two calls of the same, through a cache, are
/// given the same payload.
#[tokio::test]
async fn cacheable_unary() {
    let catalog = Catalog::numbered();
    let cached = Connection::to(layered(catalog.clone(), layer().build().unwrap()).await).await;
    let first = cached.call(request(PRODUCT, "timestamp")).await;
    let second = cached.call(request(PRODUCT, "timestamp")).await;
    assert_eq!((first.grpc_status(), &first.data), (0, &second.data));
    let third = cached.call(request(PRODUCT, "another timestamp")).await;
    assert_ne!(third.data, first.data);
}

#[tokio::test]
async fn a_hundred_callers_over_the_network_are_one_call() {
    let (catalog, gate) = gated();
    let cached = Connection::to(layered(catalog.clone(), layer().build().unwrap()).await).await;
    gate.add_permits(1);
    let seen = join_all((0..100).map(|_| cached.call(request(PRODUCT, "a")))).await;
    assert!(seen.iter().all(|seen| seen.content() == "slow"));
    assert_eq!(catalog.calls(), 1);
}

#[tokio::test]
async fn waiters_share_the_load_and_nothing_is_stored_without_a_ttl() {
    let (catalog, gate) = gated();
    let service = of(CachedMethod::fresh_for(std::time::Duration::ZERO))
        .build()
        .unwrap()
        .layer(catalog.clone());
    let mut callers: Vec<_> =
        (0..100).map(|_| Box::pin(ask(&service, request(PRODUCT, "a")))).collect();
    for caller in &mut callers {
        assert!(futures_util::poll!(caller).is_pending());
    }
    gate.add_permits(2);
    let seen = join_all(callers).await;
    assert!(seen.iter().all(|seen| seen.content() == "slow"));
    assert_eq!(catalog.calls(), 1);
    ask(&service, request(PRODUCT, "a")).await;
    assert_eq!(catalog.calls(), 2);
}

/// How many calls it takes to answer these requests one after the other.
async fn calls(layer: GrpcCacheLayer, fields: &[&[(&'static str, &'static str)]]) -> usize {
    let catalog = Catalog::numbered();
    let service = layer.layer(catalog.clone());
    for fields in fields {
        assert_eq!(ask(&service, with(request(PRODUCT, "a"), fields)).await.grpc_status(), 0);
    }
    catalog.calls()
}

#[tokio::test]
async fn metadata_that_was_not_named_makes_no_difference() {
    assert_eq!(calls(layer().build().unwrap(), &[&[("x-a", "1")], &[("x-a", "2")], &[]]).await, 1);
}

#[tokio::test]
async fn metadata_that_was_named_tells_callers_apart() {
    let by_a = CachedMethod::fresh_for(MINUTE).metadata("X-A");
    let fields: [&[_]; 4] = [&[("x-a", "1")], &[("x-a", "2")], &[], &[("x-a", "1")]];
    assert_eq!(calls(of(by_a).build().unwrap(), &fields).await, 3);
}

#[tokio::test]
async fn a_call_without_metadata_of_its_key_goes_past_the_cache_unless_that_is_optional() {
    let fields: [&[_]; 4] = [&[("x-a", "1")], &[], &[], &[("x-a", "1")]];
    let required = CachedMethod::fresh_for(MINUTE).metadata("x-a");
    assert_eq!(calls(of(required.clone()).build().unwrap(), &fields).await, 3);
    let optional = CachedMethod::fresh_for(MINUTE).optional_metadata("x-a");
    assert_eq!(calls(of(optional).build().unwrap(), &fields).await, 2);
    let both = required.optional_metadata("x-a");
    assert_eq!(calls(of(both).build().unwrap(), &fields).await, 3);
}

#[tokio::test]
async fn requests_with_credentials_go_past_the_cache() {
    for name in ["authorization", "proxy-authorization", "cookie", "x-api-key", "x-auth-token"] {
        let fields: [&[_]; 4] = [&[(name, "a")], &[(name, "a")], &[], &[(name, "a")]];
        assert_eq!(calls(layer().build().unwrap(), &fields).await, 4, "{name}");
        let keyed = CachedMethod::fresh_for(MINUTE).metadata(name);
        assert_eq!(calls(of(keyed).build().unwrap(), &fields).await, 2, "{name}");
        let ignoring = CachedMethod::fresh_for(MINUTE).ignoring_credentials();
        assert_eq!(calls(of(ignoring).build().unwrap(), &fields).await, 1, "{name}");
    }
}

#[tokio::test]
async fn metadata_that_the_program_calls_credentials_goes_past_the_cache() {
    let fields: [&[_]; 2] = [&[("x-session", "a")], &[("x-session", "a")]];
    assert_eq!(calls(layer().build().unwrap(), &fields).await, 1);
    let method = CachedMethod::fresh_for(MINUTE).credentials(["x-session"]);
    assert_eq!(calls(of(method.clone()).build().unwrap(), &fields).await, 2);
    let fields: [&[_]; 2] = [&[("x-api-key", "a")], &[("x-api-key", "a")]];
    assert_eq!(calls(of(method).build().unwrap(), &fields).await, 2);
}

#[tokio::test]
async fn two_authorities_have_separate_answers_over_http_2() {
    let method = CachedMethod::fresh_for(MINUTE).authority();
    let layer = of(method).build().unwrap();
    let cache = layer.handle();
    let address = layered(Catalog::numbered(), layer).await;
    let (one, other) = (Connection::to(address).await, Connection::to(address).await);
    let at = |host: &str| {
        let mut request = request(PRODUCT, "a");
        *request.uri_mut() = format!("http://{host}{PRODUCT}").parse().unwrap();
        request
    };
    assert_eq!(one.call(at("a.example")).await.content(), "0");
    assert_eq!(other.call(at("b.example")).await.content(), "1");
    assert_eq!(one.call(at("b.example")).await.content(), "1");
    assert_eq!(other.call(at("A.example:443")).await.content(), "0");
    // Which of the two is meant is uncertain.
    let contradictory = || with(at("a.example"), &[("host", "b.example")]);
    assert_eq!(one.call(contradictory()).await.content(), "2");
    assert_eq!(one.call(contradictory()).await.content(), "3");

    let message = Wanted { what: "a".to_owned() }.encode_to_vec();
    let call = cache.call(PRODUCT, message).authority("a.example:80").build().unwrap();
    assert!(cache.invalidate(&call).await.unwrap());
    assert_eq!(one.call(at("a.example")).await.content(), "4");
    assert_eq!(one.call(at("b.example")).await.content(), "1");
}

/// An interceptor that lets requests with a key pass.
fn with_key(request: Request<()>) -> Result<Request<()>, Status> {
    match request.metadata().contains_key("x-api-key") {
        true => Ok(request),
        false => Err(Status::unauthenticated("no key")),
    }
}

#[tokio::test]
async fn a_caller_without_a_key_gets_nothing_that_one_with_a_key_has_stored() {
    let service =
        layer().build().unwrap().layer(InterceptedService::new(Catalog::numbered(), with_key));
    let keyed = || with(request(PRODUCT, "a"), &[("x-api-key", "alice")]);
    assert_eq!(ask(&service, request(PRODUCT, "a")).await.grpc_status(), 16);
    assert_eq!(ask(&service, keyed()).await.content(), "0");
    assert_eq!(ask(&service, request(PRODUCT, "a")).await.grpc_status(), 16);
    assert_eq!(ask(&service, keyed()).await.content(), "1");
}

/// The order of the guide: callers are authenticated first, and share the answer then.
#[tokio::test]
async fn an_interceptor_above_the_layer_sees_every_call() {
    let catalog = Catalog::numbered();
    let shared = CachedMethod::fresh_for(MINUTE).ignoring_credentials();
    let service =
        InterceptedService::new(of(shared).build().unwrap().layer(catalog.clone()), with_key);
    for caller in ["alice", "bob"] {
        let keyed = with(request(PRODUCT, "a"), &[("x-api-key", caller)]);
        assert_eq!(ask(&service, keyed).await.content(), "0");
        assert_eq!(ask(&service, request(PRODUCT, "a")).await.grpc_status(), 16);
    }
    assert_eq!(catalog.calls(), 1);
}

/// An interceptor that lets requests with a key pass, and tells the service the user.
fn with_user(mut request: Request<()>) -> Result<Request<()>, Status> {
    let key = request.metadata().get("x-api-key").cloned();
    let key = key.ok_or_else(|| Status::unauthenticated("no key"))?;
    request.metadata_mut().insert("x-user", key);
    Ok(request)
}

/// The wrong order: the metadata of the key is set below the layer.
#[tokio::test]
async fn above_the_interceptor_that_sets_its_metadata_the_layer_shares_nothing() {
    let catalog = Catalog::new(|asked| {
        let user = asked.metadata().get("x-user").expect("a user").as_bytes().to_vec();
        std::future::ready(Ok(Response::new(Product::of(user))))
    });
    let by_user = CachedMethod::fresh_for(MINUTE).metadata("x-user").ignoring_credentials();
    let layer = of(by_user).build().unwrap();
    let wrong = layer.layer(InterceptedService::new(catalog.clone(), with_user));
    let right = InterceptedService::new(layer.layer(catalog.clone()), with_user);
    let keyed = |user| with(request(PRODUCT, "a"), &[("x-api-key", user)]);
    for user in ["alice", "bob", "alice"] {
        assert_eq!(ask(&wrong, keyed(user)).await.content(), user);
        assert_eq!(ask(&wrong, request(PRODUCT, "a")).await.grpc_status(), 16);
        assert_eq!(ask(&right, keyed(user)).await.content(), user);
        assert_eq!(ask(&right, request(PRODUCT, "a")).await.grpc_status(), 16);
    }
    assert_eq!(catalog.calls(), 5);
}

#[tokio::test]
async fn answers_that_the_server_calls_private_are_for_their_callers_only() {
    for said in ["no-store", "private"] {
        let catalog = Catalog::counting(move |number| {
            let mut response = Response::new(Product::of(number.to_string()));
            response.metadata_mut().insert("cache-control", said.parse().unwrap());
            Ok(response)
        });
        let service = layer().build().unwrap().layer(catalog.clone());
        let seen = [
            ask(&service, request(PRODUCT, "a")).await.content(),
            ask(&service, request(PRODUCT, "a")).await.content(),
        ];
        assert_eq!(seen, ["0", "1"], "{said}");
    }
}

#[tokio::test]
async fn waiters_for_a_private_answer_call_for_themselves() {
    let gate = Arc::new(Semaphore::new(0));
    let count = Arc::new(Semaphore::new(0));
    let entry = Arc::clone(&gate);
    let called = Arc::clone(&count);
    let catalog = Catalog::new(move |_| {
        let gate = Arc::clone(&entry);
        let called = Arc::clone(&called);
        async move {
            called.add_permits(1);
            gate.acquire().await.expect("a gate").forget();
            Err(Status::permission_denied("not you"))
        }
    });
    let service = layer().build().unwrap().layer(catalog.clone());
    let callers = (0..10).map(|_| {
        tokio::spawn({
            let service = service.clone();
            async move { ask(&service, request(PRODUCT, "a")).await }
        })
    });
    let callers: Vec<_> = callers.collect();
    count.acquire().await.unwrap().forget();
    gate.add_permits(1);
    // All others call concurrently: none of them waits for another.
    count.acquire_many(9).await.unwrap().forget();
    gate.add_permits(9);
    for caller in callers {
        assert_eq!(caller.await.unwrap().grpc_status(), Code::PermissionDenied as u32);
    }
    assert_eq!(catalog.calls(), 10);
}

#[tokio::test]
async fn how_an_answer_came_about_is_told_if_that_is_asked_for() {
    let service = layer().show_status().build().unwrap().layer(Catalog::numbered());
    let first = ask(&service, request(PRODUCT, "a")).await;
    assert_eq!(first.cache_status(), "bellwether; fwd=miss; stored");
    let second = ask(&service, request(PRODUCT, "a")).await;
    assert!(second.cache_status().starts_with("bellwether; hit"), "{second:?}");
    let quiet = layer().build().unwrap().layer(Catalog::numbered());
    assert!(!ask(&quiet, request(PRODUCT, "a")).await.headers.contains_key("cache-status"));
}

#[test]
fn what_is_no_method_or_no_metadata_is_named_by_build() {
    for path in ["catalog.Catalog/Product", "/catalog.Catalog", "/", "/a/b/c", "/a b/c"] {
        let method = CachedMethod::fresh_for(MINUTE);
        let refused =
            GrpcCacheLayer::builder(MemoryStore::new(1)).method(path, method).build().unwrap_err();
        assert!(refused.to_string().contains(path), "{refused}");
    }
    let refused = |method| {
        let layer = GrpcCacheLayer::builder(MemoryStore::new(1)).method(PRODUCT, method);
        layer.max_request_bytes(0).build().unwrap_err().to_string()
    };
    let method = || CachedMethod::fresh_for(MINUTE);
    let message = refused(method().metadata("no name").metadata("nor this"));
    assert!(message.contains("no name"), "{message}");
    for name in ["host", ":authority"] {
        let message = refused(method().metadata(name));
        assert!(message.contains("authority()"), "{message}");
    }
    let message = refused(method().credentials(["x-a", "no name"]));
    assert!(message.contains("no name"), "{message}");
}
