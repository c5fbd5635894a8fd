//! No caller gets an answer that was invalidated.

use std::time::Duration;

use bellwether::store::StoreErrorKind;
use bellwether::{MemoryStore, StoreError};
use bellwether_grpc::{CachedMethod, GrpcCacheLayer};
use bellwether_test::faulty::{FaultyStore, Operation};
use bellwether_testkit::error_chain::find_in_chain;
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
    cache.invalidate(&cache.call(PRODUCT, wanted("a")).unwrap()).await.unwrap();
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
    let call = cache.call(PRODUCT, wanted("a")).unwrap().metadata("x-tenant", "a").unwrap();
    cache.invalidate(&call).await.unwrap();
    assert_eq!([of_tenant("a").await, of_tenant("b").await], ["2", "1"]);
}

#[tokio::test(start_paused = true)]
async fn an_expired_answer_is_stale() {
    let layer = of(CachedMethod::fresh_for(MINUTE).stale_while_revalidate(MINUTE)).build().unwrap();
    let cache = layer.handle();
    let catalog = Catalog::numbered();
    let service = layer.layer(catalog.clone());
    ask(&service, request(PRODUCT, "a")).await;
    cache.expire(&cache.call(PRODUCT, wanted("a")).unwrap()).await.unwrap();
    assert_eq!(ask(&service, request(PRODUCT, "a")).await.content(), "0");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(catalog.calls(), 2);
}

#[test]
fn a_call_of_a_method_that_is_not_cached_is_refused() {
    let cache = GrpcCacheLayer::builder(MemoryStore::new(1)).build().unwrap().handle();
    let refused = cache.call(PRODUCT, []).unwrap_err();
    assert!(refused.to_string().contains(PRODUCT), "{refused}");
}

#[tokio::test]
async fn an_invalidation_that_fails_has_the_error_of_the_store_in_its_chain() {
    let store = FaultyStore::new(MemoryStore::new(10));
    store.on(Operation::Invalidate).fail(StoreErrorKind::Refused);
    let product = CachedMethod::fresh_for(MINUTE);
    let cache =
        GrpcCacheLayer::builder(store).method(PRODUCT, product).build().expect("a method").handle();
    let call = cache.call(PRODUCT, wanted("lamp")).expect("a cached method");
    let error = cache.invalidate(&call).await.unwrap_err();
    let cause = find_in_chain::<StoreError>(&error).expect("the error of the store");
    assert_eq!(cause.kind(), StoreErrorKind::Refused);
}
