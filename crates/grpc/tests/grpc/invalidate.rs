//! No caller gets an answer that was invalidated.

use bellwether::MemoryStore;
use bellwether_grpc::{CachedMethod, GrpcCacheLayer, GrpcCallBuilder};
use prost::Message;
use tower::Layer;

use crate::catalog::{Catalog, PRODUCT, Wanted};
use crate::raw::{ask, request, with};
use crate::server::{MINUTE, layer, of};

fn wanted(what: &str) -> Vec<u8> {
    Wanted { what: what.to_owned() }.encode_to_vec()
}

#[tokio::test]
async fn an_invalidated_answer_is_gone_in_every_encoding() {
    let layer = layer().build().unwrap();
    let cache = layer.handle();
    let service = layer.layer(Catalog::numbered());
    let accepted = ["", "gzip", "identity,deflate,gzip", "zstd, deflate,snappy"];
    let asked = async |accepted| {
        let fields = [("grpc-accept-encoding", accepted)];
        ask(&service, with(request(PRODUCT, "a"), &fields)).await.data
    };
    let mut before = Vec::new();
    for accepted in accepted {
        before.push(asked(accepted).await);
    }
    let other = ask(&service, request(PRODUCT, "b")).await;
    cache.invalidate(&cache.call(PRODUCT, wanted("a")).build().unwrap()).await.unwrap();
    for (accepted, before) in accepted.into_iter().zip(before) {
        assert_ne!(asked(accepted).await, before, "{accepted}");
    }
    assert_eq!(ask(&service, request(PRODUCT, "b")).await, other);
}

#[tokio::test]
async fn metadata_selects_the_answers_to_invalidate() {
    let layer = of(CachedMethod::fresh_for(MINUTE).metadata("x-tenant")).build().unwrap();
    let cache = layer.handle();
    let service = layer.layer(Catalog::numbered());
    let of_tenant = async |tenant| {
        ask(&service, with(request(PRODUCT, "a"), &[("x-tenant", tenant)])).await.content()
    };
    assert_eq!([of_tenant("a").await, of_tenant("b").await], ["0", "1"]);
    let call = cache.call(PRODUCT, wanted("a")).metadata("x-tenant", "a").build().unwrap();
    cache.invalidate(&call).await.unwrap();
    assert_eq!([of_tenant("a").await, of_tenant("b").await], ["2", "1"]);
}

#[test]
fn a_call_of_a_method_that_is_not_cached_is_refused() {
    let cache = GrpcCacheLayer::builder(MemoryStore::new(1)).build().unwrap().handle();
    let refused = cache.call(PRODUCT, []).build().unwrap_err();
    assert!(refused.to_string().contains(PRODUCT), "{refused}");
}

#[test]
fn a_call_with_wrong_metadata_or_a_wrong_authority_is_refused_with_the_first_one() {
    let product = CachedMethod::fresh_for(MINUTE);
    let layer = GrpcCacheLayer::builder(MemoryStore::new(1)).method(PRODUCT, product);
    let cache = layer.build().unwrap().handle();
    let refused = |call: GrpcCallBuilder| call.build().unwrap_err().to_string();
    let call = || cache.call(PRODUCT, []);
    let message = refused(call().metadata("no name", "a").authority("a b"));
    assert!(message.contains("no name"), "{message}");
    assert!(refused(call().metadata("x-tenant", "a\nb")).contains("x-tenant"));
    assert!(refused(call().authority("user@shop.example")).contains("user@shop.example"));
}

#[test]
fn a_call_without_metadata_of_the_key_is_refused_since_it_has_no_answer() {
    let method = CachedMethod::fresh_for(MINUTE).metadata("x-tenant").optional_metadata("x-flag");
    let cache = of(method).build().unwrap().handle();
    let refused = cache.call(PRODUCT, []).metadata("x-flag", "a").build().unwrap_err();
    assert!(refused.to_string().contains("x-tenant"), "{refused}");
    assert!(cache.call(PRODUCT, []).metadata("x-tenant", "a").build().is_ok());
}
