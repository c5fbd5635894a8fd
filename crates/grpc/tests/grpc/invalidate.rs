//! No caller gets an answer that was invalidated.

use std::time::Duration;

use bellwether::store::StoreErrorKind;
use bellwether::{MemoryStore, StoreError, Tag};
use bellwether_grpc::{CachedMethod, GrpcCacheLayer, GrpcCallBuilder, GrpcHandle};
use bellwether_test::faulty::{FaultyStore, Operation};
use bellwether_testkit::error_chain::find_in_chain;
use futures_util::FutureExt;
use prost::{DecodeError, Message};
use tokio::sync::oneshot;
use tokio::task::yield_now;
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

#[tokio::test(start_paused = true)]
async fn an_expired_answer_is_stale() {
    let layer = of(CachedMethod::fresh_for(MINUTE).stale_while_revalidate(MINUTE)).build().unwrap();
    let cache = layer.handle();
    let catalog = Catalog::numbered();
    let service = layer.layer(catalog.clone());
    ask(&service, request(PRODUCT, "a")).await;
    cache.expire(&cache.call(PRODUCT, wanted("a")).build().unwrap()).await.unwrap();
    assert_eq!(ask(&service, request(PRODUCT, "a")).await.content(), "0");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(catalog.calls(), 2);
}

/// Changes the catalog by `change`, whose caller leaves while the write goes on, and asks until the answer
/// is another one.
async fn changed_by_one_who_leaves<W: Future>(
    method: CachedMethod,
    change: impl FnOnce(GrpcHandle, oneshot::Receiver<()>) -> W,
) {
    let layer = of(method).build().unwrap();
    let service = layer.layer(Catalog::numbered());
    let asked = async || ask(&service, request(PRODUCT, "a")).await.data;
    let old = asked().await;
    let (end, ended) = oneshot::channel();
    assert!(change(layer.handle(), ended).now_or_never().is_none());
    assert_eq!(asked().await, old, "the write has not ended");
    end.send(()).unwrap();
    while asked().await == old {
        yield_now().await;
    }
}

#[tokio::test]
async fn a_change_invalidates_its_call_though_its_caller_has_left() {
    changed_by_one_who_leaves(CachedMethod::fresh_for(MINUTE), async |cache, write| {
        let call = cache.call(PRODUCT, wanted("a")).build().unwrap();
        cache.change(&call, write).await
    })
    .await;
}

#[tokio::test]
async fn a_change_invalidates_its_tag_though_its_caller_has_left() {
    let method = CachedMethod::fresh_for(MINUTE).tags(|_| Ok::<_, DecodeError>([Tag::of("all")]));
    let change = async |cache: GrpcHandle, write| cache.change_tag(&Tag::of("all"), write).await;
    changed_by_one_who_leaves(method, change).await;
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

#[tokio::test]
async fn an_invalidation_that_fails_has_the_error_of_the_store_in_its_chain() {
    let store = FaultyStore::new(MemoryStore::new(10));
    store.on(Operation::Invalidate).fail(StoreErrorKind::Refused);
    let product = CachedMethod::fresh_for(MINUTE);
    let cache =
        GrpcCacheLayer::builder(store).method(PRODUCT, product).build().expect("a method").handle();
    let call = cache.call(PRODUCT, wanted("lamp")).build().expect("a cached method");
    let error = cache.invalidate(&call).await.unwrap_err();
    let cause = find_in_chain::<StoreError>(&error).expect("the error of the store");
    assert_eq!(cause.kind(), StoreErrorKind::Refused);
}
