//! An origin that fails, and who is told so.

use std::sync::Arc;
use std::time::Duration;

use bellwether::MemoryStore;
use bellwether::http::{HttpCache, HttpCacheLayer, RequestKey};
use bytes::Bytes;
use http::Request;

use crate::origin::{Origin, ask, cached, get, memory, page, pass, text};

/// A page that knows whether it is still there.
struct Tracked {
    page: Vec<u8>,
    _there: Arc<()>,
}

impl AsRef<[u8]> for Tracked {
    fn as_ref(&self) -> &[u8] {
        &self.page
    }
}

/// How many of a hundred pages of errors are still there when they were given out.
async fn remembered(bytes: usize) -> (usize, HttpCache<Origin>) {
    let there = Arc::new(());
    let origin = {
        let there = Arc::clone(&there);
        Origin::new(move |_, _| {
            let page_there = Tracked { page: vec![b'x'; bytes], _there: Arc::clone(&there) };
            let tracked = Bytes::from_owner(page_there);
            async { Ok(page(&[(":status", "500")], tracked)) }
        })
    };
    let layer = HttpCacheLayer::keyed(MemoryStore::new(1_000), RequestKey::path());
    let cache = cached(&layer.ttl(Duration::from_secs(60)), &origin);
    for nth in 0..100 {
        let answer = ask(&cache, "GET", &format!("/item/{nth}"), &[]).await;
        assert_eq!(answer.status(), 500);
        assert_eq!(text(answer).await.len(), bytes);
        tokio::task::yield_now().await;
    }
    assert_eq!(origin.asked(), 100);
    // One each is held by who counts, and by the origin.
    (Arc::strong_count(&there) - 2, cache)
}

#[tokio::test(start_paused = true)]
async fn a_small_page_of_an_error_is_given_to_those_who_ask_again_soon() {
    let (pages, cache) = remembered(1_000).await;
    assert_eq!(pages, 100);
    let again = ask(&cache, "GET", "/item/0", &[]).await;
    assert_eq!((again.status().as_u16(), text(again).await.len()), (500, 1_000));
}

#[tokio::test(start_paused = true)]
async fn of_a_large_page_of_an_error_nothing_is_kept_but_that_it_failed() {
    let (pages, cache) = remembered(256 * 1024).await;
    assert_eq!(pages, 0);
    assert_eq!(ask(&cache, "GET", "/item/0", &[]).await.status(), 503);
}

/// One whose requests the origin breaks off, every second.
#[tokio::test(start_paused = true)]
async fn who_makes_the_origin_fail_for_himself_does_not_make_it_fail_for_others() {
    let origin =
        Origin::new(async |request: Request<_>, _| match request.headers().contains_key("x-bad") {
            false => Ok(page(&[("cache-control", "max-age=10")], "")),
            true => Err("connection reset".into()),
        });
    let cache = cached(&memory(), &origin);
    get(&cache, &[]).await;
    for second in 0..180 {
        assert_eq!(get(&cache, &[]).await.status(), 200, "in second {second}");
        get(&cache, &[("x-bad", "1"), ("cache-control", "no-cache")]).await;
        pass(1).await;
    }
}
