//! Answers that share a tag, which their request messages tell.

use std::time::Duration;

use bellwether::{CacheErrorKind, Tag};
use bellwether_grpc::{CachedMethod, GrpcCacheLayer};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use prost::Message;
use tower::Layer;

use crate::catalog::{Catalog, PRODUCT, Wanted};
use crate::raw::{Connection, ask, request, with};
use crate::server::{MINUTE, layered, of};

fn shelf(name: &str) -> Tag {
    Tag::of("shelf").with(name)
}

/// Products are tagged with the shelf that their name begins with, as in `north/lamp`.
fn by_shelf() -> CachedMethod {
    CachedMethod::fresh_for(MINUTE).tags(|message| {
        let Wanted { what } = Wanted::decode(message)?;
        let name = what.split('/').next().unwrap_or_default();
        Ok::<_, prost::DecodeError>([Tag::of("catalog"), shelf(name)])
    })
}

#[tokio::test]
async fn a_tag_of_the_request_removes_all_answers_that_have_it_in_every_encoding() {
    let layer = of(by_shelf()).build().unwrap();
    let cache = layer.handle();
    let service = layer.layer(Catalog::numbered());
    let asked = async |what, accepted| {
        let fields = [("grpc-accept-encoding", accepted)];
        ask(&service, with(request(PRODUCT, what), &fields)).await.data
    };
    let calls = [("north/a", ""), ("north/a", "gzip"), ("north/b", ""), ("south/a", "")];
    let mut before = Vec::new();
    for (what, accepted) in calls {
        before.push(asked(what, accepted).await);
    }
    cache.invalidate_tag(&shelf("north")).await.unwrap();
    for ((what, accepted), before) in calls.into_iter().zip(before) {
        let is_same = asked(what, accepted).await == before;
        assert_eq!(is_same, what.starts_with("south"), "{what} {accepted}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_tag_is_served_stale_while_it_is_loaded_again() {
    let layer = of(by_shelf().stale_while_revalidate(MINUTE)).build().unwrap();
    let catalog = Catalog::numbered();
    let service = layer.layer(catalog.clone());
    let asked = async || ask(&service, request(PRODUCT, "north/a")).await.content();
    assert_eq!(asked().await, "0");
    layer.handle().expire_tag(&Tag::of("catalog"), Duration::ZERO).await.unwrap();
    assert_eq!(asked().await, "0");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(catalog.calls(), 2);
}

/// Its answers could not be invalidated by a tag.
#[tokio::test]
async fn a_message_without_known_tags_goes_past_the_cache() {
    let picky = CachedMethod::fresh_for(MINUTE).tags(|message| match Wanted::decode(message) {
        Ok(wanted) if wanted.what != "odd" => Ok([shelf("any")]),
        _ => Err("no such shelf"),
    });
    let service = of(picky).build().unwrap().layer(Catalog::numbered());
    let asked = async |what| ask(&service, request(PRODUCT, what)).await.content();
    assert_eq!([asked("odd").await, asked("odd").await], ["0", "1"]);
    assert_eq!([asked("even").await, asked("even").await], ["2", "2"]);
}

#[tokio::test]
async fn a_compressed_message_goes_past_the_cache_if_its_method_has_tags() {
    // `a` in a message, by gzip.
    let compressed: &[u8] =
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xe3\x62\x4c\x04\x00\x4b\x3c\x78\xd1\x03\x00\x00\x00";
    let length = u8::try_from(compressed.len()).unwrap();
    let body = Bytes::from([&[1, 0, 0, 0, length], compressed].concat());
    for (method, calls) in [(CachedMethod::fresh_for(MINUTE), 1), (by_shelf(), 2)] {
        let catalog = Catalog::numbered();
        let service = of(method.with_compressed_requests()).build().unwrap().layer(catalog.clone());
        for _ in 0..2 {
            let asked = request(PRODUCT, "a").map(|_| Full::new(body.clone()));
            let asked: Request<Full<Bytes>> = with(asked, &[("grpc-encoding", "gzip")]);
            assert_eq!(ask(&service, asked).await.grpc_status(), 0);
        }
        assert_eq!(catalog.calls(), calls);
    }
}

#[tokio::test]
async fn a_request_with_more_tags_than_an_entry_may_have_fails() {
    let many = CachedMethod::fresh_for(MINUTE)
        .tags(|_| Ok::<_, std::fmt::Error>((0..33).map(|nth: u64| Tag::of("shelf").with(nth))));
    let catalog = Catalog::numbered();
    let service = of(many).build().unwrap().layer(catalog.clone());
    let internal = tonic::Code::Internal as i32;
    let status = ask(&service, request(PRODUCT, "a")).await.grpc_status();
    assert_eq!(i32::try_from(status), Ok(internal));
    assert_eq!(catalog.calls(), 0);
}

#[tokio::test]
async fn many_calls_are_invalidated_at_once_and_counted() {
    let layer = of(by_shelf()).build().unwrap();
    let cache = layer.handle();
    let service = layer.layer(Catalog::numbered());
    for what in ["a", "b", "c"] {
        ask(&service, request(PRODUCT, what)).await;
    }
    let call = |what: &str| {
        cache.call(PRODUCT, Wanted { what: what.to_owned() }.encode_to_vec()).build().unwrap()
    };
    assert_eq!(cache.invalidate_many(["a", "b", "x"].map(call)).await.unwrap(), 2);
    let after =
        [ask(&service, request(PRODUCT, "a")).await, ask(&service, request(PRODUCT, "c")).await];
    assert_eq!(after.map(|seen| seen.content()), ["3", "2"]);
}

#[tokio::test]
async fn many_calls_are_expired_at_once_and_counted() {
    let layer = of(by_shelf()).build().unwrap();
    let cache = layer.handle();
    let service = layer.layer(Catalog::numbered());
    for what in ["a", "b", "c"] {
        ask(&service, request(PRODUCT, what)).await;
    }
    let call = |what: &str| {
        cache.call(PRODUCT, Wanted { what: what.to_owned() }.encode_to_vec()).build().unwrap()
    };
    assert_eq!(cache.expire_many(["a", "b", "x"].map(call)).await.unwrap(), 2);
    let after =
        [ask(&service, request(PRODUCT, "a")).await, ask(&service, request(PRODUCT, "c")).await];
    assert_eq!(after.map(|seen| seen.content()), ["3", "2"]);
}

#[tokio::test]
async fn everything_of_a_clearable_layer_is_removed_at_once() {
    let layer = of(CachedMethod::fresh_for(MINUTE)).clearable().build().unwrap();
    let service = layer.layer(Catalog::numbered());
    let asked = async || ask(&service, request(PRODUCT, "a")).await.content();
    assert_eq!([asked().await, asked().await], ["0", "0"]);
    layer.handle().clear().await.unwrap();
    assert_eq!(asked().await, "1");
}

#[tokio::test]
async fn a_layer_that_is_not_clearable_says_so() {
    let layer: GrpcCacheLayer = of(by_shelf()).build().unwrap();
    let error = layer.handle().clear().await.unwrap_err();
    assert_eq!(error.kind(), CacheErrorKind::NotClearable);
}

#[tokio::test]
async fn a_tag_removes_answers_over_a_connection() {
    let layer = of(by_shelf()).build().unwrap();
    let cache = layer.handle();
    let server = Connection::to(layered(Catalog::numbered(), layer).await).await;
    let asked = async || server.call(request(PRODUCT, "north/a")).await.content();
    assert_eq!([asked().await, asked().await], ["0", "0"]);
    cache.invalidate_tag(&Tag::of("catalog")).await.unwrap();
    assert_eq!(asked().await, "1");
}
