//! Requests that change something.

use std::future::pending;

use futures_util::FutureExt;
use http::Request;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio_test::{assert_pending, task};
use tower::Service;

use crate::origin::{Origin, ask, cached, get, is_hit, memory, page, request};

/// A cached origin that answers changes with these fields.
fn shop(fields: &'static [(&'static str, &'static str)]) -> Origin {
    Origin::new(async move |request: Request<_>, nth| {
        Ok(match request.method().as_str() {
            "GET" => page(&[("cache-control", "max-age=60")], nth.to_string()),
            _ => page(fields, ""),
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_change_removes_what_is_kept_for_its_target() {
    let cache = cached(&memory().build().unwrap(), &shop(&[]));
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        get(&cache, &[]).await;
        assert!(is_hit(&get(&cache, &[]).await));
        ask(&cache, method, "http://shop/item", &[]).await;
        assert!(!is_hit(&get(&cache, &[]).await), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_failed_removes_nothing() {
    let cache = cached(&memory().build().unwrap(), &shop(&[(":status", "409")]));
    get(&cache, &[]).await;
    ask(&cache, "POST", "http://shop/item", &[]).await;
    assert!(is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn a_change_removes_what_its_answer_names() {
    let cache = cached(&memory().build().unwrap(), &shop(&[("location", "/item")]));
    get(&cache, &[]).await;
    ask(&cache, "POST", "http://shop/items", &[]).await;
    assert!(!is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn a_change_names_nothing_of_others() {
    let cache = cached(&memory().build().unwrap(), &shop(&[("location", "http://shop/item")]));
    get(&cache, &[]).await;
    ask(&cache, "POST", "http://elsewhere/items", &[]).await;
    assert!(is_hit(&get(&cache, &[]).await));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_with_a_safe_method_invalidates_nothing() {
    let origin = Origin::new(async |request: Request<_>, nth| match request.method().as_str() {
        "GET" => Ok(page(&[("cache-control", "max-age=60")], nth.to_string())),
        _ => pending().await,
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    for method in ["QUERY", "PROPFIND", "SEARCH", "REPORT", "OPTIONS", "TRACE"] {
        let mut safe = task::spawn(cache.clone().call(request(method, "http://shop/item", &[])));
        assert_pending!(safe.poll());
        drop(safe);
        yield_now().await;
        assert!(is_hit(&get(&cache, &[]).await), "{method}");
    }
}

/// Requests over HTTP/2 state their scheme, and requests over HTTP/1.1 do not.
#[tokio::test(start_paused = true)]
async fn a_change_by_http_2_removes_what_was_asked_for_by_http_1_and_the_other_way_round() {
    let cache = cached(&memory().build().unwrap(), &shop(&[]));
    let one = ("/item", &[("host", "shop")][..]);
    let two = ("https://shop/item", &[][..]);
    for ((read, read_by), (written, written_by)) in [(one, two), (two, one)] {
        ask(&cache, "GET", read, read_by).await;
        assert!(is_hit(&ask(&cache, "GET", read, read_by).await));
        ask(&cache, "PUT", written, written_by).await;
        assert!(!is_hit(&ask(&cache, "GET", read, read_by).await), "{read}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_removes_what_its_answer_names_by_a_scheme_that_the_request_did_not_say() {
    let cache = cached(&memory().build().unwrap(), &shop(&[("location", "https://shop/item")]));
    let host = [("host", "shop")];
    ask(&cache, "GET", "/item", &host).await;
    ask(&cache, "POST", "/items", &host).await;
    assert!(!is_hit(&ask(&cache, "GET", "/item", &host).await));
}

#[tokio::test(start_paused = true)]
async fn what_is_invalidated_by_hand_is_gone_by_either_scheme() {
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &shop(&[]));
    let kept = ["http://shop/item", "https://shop/item"];
    for by_hand in ["http://shop/item", "https://shop:443/item"] {
        for uri in kept {
            ask(&cache, "GET", uri, &[]).await;
        }
        layer.handle().invalidate(&by_hand.parse().unwrap()).await.unwrap();
        for uri in kept {
            assert!(!is_hit(&ask(&cache, "GET", uri, &[]).await), "{uri}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_removes_the_response_though_its_caller_has_left() {
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &shop(&[]));
    let asked = async || is_hit(&ask(&cache, "GET", "https://shop/item", &[]).await);
    assert!(!asked().await && asked().await);
    let (end, ended) = oneshot::channel::<()>();
    let (handle, uri) = (layer.handle(), "https://shop/item".parse().unwrap());
    assert!(handle.change(&uri, ended).now_or_never().is_none());
    assert!(asked().await, "the write has not ended");
    end.send(()).unwrap();
    while asked().await {
        yield_now().await;
    }
}

/// Over HTTP/1.1 a request may name the default port of the scheme that it does not state.
#[tokio::test(start_paused = true)]
async fn the_default_port_of_either_scheme_is_none() {
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &shop(&[]));
    for host in ["shop:443", "shop:80", "shop"] {
        let host = [("host", host)];
        for by_hand in ["https://shop/item", "http://shop/item", "https://shop:443/item"] {
            ask(&cache, "GET", "/item", &host).await;
            assert!(is_hit(&ask(&cache, "GET", "/item", &host).await));
            layer.handle().invalidate(&by_hand.parse().unwrap()).await.unwrap();
            assert!(!is_hit(&ask(&cache, "GET", "/item", &host).await), "{host:?} by {by_hand}");
        }
        ask(&cache, "PUT", "/item", &[("host", "shop")]).await;
        assert!(!is_hit(&ask(&cache, "GET", "/item", &host).await), "{host:?}");
    }
}
