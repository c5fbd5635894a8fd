//! Answers that share a tag, which their request messages tell.

use bellwether::Tag;
use bellwether_grpc::CachedMethod;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use prost::Message;
use tower::Layer;

use crate::catalog::{Catalog, PRODUCT, Wanted};
use crate::raw::{ask, request, with};
use crate::server::{MINUTE, of};

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
async fn a_compressed_message_goes_past_the_cache_with_and_without_tags() {
    // `a` in a message, by gzip.
    let compressed: &[u8] =
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xe3\x62\x4c\x04\x00\x4b\x3c\x78\xd1\x03\x00\x00\x00";
    let length = u8::try_from(compressed.len()).unwrap();
    let body = Bytes::from([&[1, 0, 0, 0, length], compressed].concat());
    for method in [CachedMethod::fresh_for(MINUTE), by_shelf()] {
        let catalog = Catalog::numbered();
        let service = of(method).build().unwrap().layer(catalog.clone());
        for _ in 0..2 {
            let asked = request(PRODUCT, "a").map(|_| Full::new(body.clone()));
            let asked: Request<Full<Bytes>> = with(asked, &[("grpc-encoding", "gzip")]);
            assert_eq!(ask(&service, asked).await.grpc_status(), 0);
        }
        assert_eq!(catalog.calls(), 2);
    }
}
