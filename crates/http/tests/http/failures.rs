//! An origin that fails, and which callers get its errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bellwether::MemoryStore;
use bellwether_http::{HttpCache, HttpCacheLayer, RequestKey};
use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;

use crate::origin::{Origin, ask, cached, get, memory, page, pass, text};

/// A page that counts its live instances.
struct Tracked {
    page: Vec<u8>,
    _there: Arc<()>,
}

impl AsRef<[u8]> for Tracked {
    fn as_ref(&self) -> &[u8] {
        &self.page
    }
}

/// How many of a hundred error pages are still in memory after they were served.
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
    let cache = cached(&layer.ttl(Duration::from_secs(60)).build().unwrap(), &origin);
    for nth in 0..200 {
        let answer = ask(&cache, "GET", &format!("/item/{}", nth / 2), &[]).await;
        assert_eq!(answer.status(), 500);
        assert_eq!(text(answer).await.len(), bytes);
        tokio::task::yield_now().await;
    }
    assert_eq!(origin.asked(), 200);
    // One is held by this counter, and one by the origin.
    (Arc::strong_count(&there) - 2, cache)
}

#[tokio::test(start_paused = true)]
async fn a_small_error_page_is_served_to_later_callers_for_a_while() {
    let (pages, cache) = remembered(1_000).await;
    assert_eq!(pages, 100);
    let again = ask(&cache, "GET", "/item/0", &[]).await;
    assert_eq!((again.status().as_u16(), text(again).await.len()), (500, 1_000));
}

#[tokio::test(start_paused = true)]
async fn of_a_large_error_page_only_the_failure_is_remembered() {
    let (pages, cache) = remembered(256 * 1024).await;
    assert_eq!(pages, 0);
    assert_eq!(ask(&cache, "GET", "/item/0", &[]).await.status(), 503);
}

/// A client sends a request every second that the origin aborts.
#[tokio::test(start_paused = true)]
async fn a_client_whose_requests_make_the_origin_fail_causes_no_failure_for_others() {
    let origin =
        Origin::new(async |request: Request<_>, _| match request.headers().contains_key("x-bad") {
            false => Ok(page(&[("cache-control", "max-age=10")], "")),
            true => Err("connection reset".into()),
        });
    let cache = cached(&memory().build().unwrap(), &origin);
    get(&cache, &[]).await;
    for second in 0..180 {
        assert_eq!(get(&cache, &[]).await.status(), 200, "in second {second}");
        get(&cache, &[("x-bad", "1"), ("cache-control", "no-cache")]).await;
        pass(1).await;
    }
}

/// The response to a bad request, after a second like all responses.
fn breakable(status: &'static str) -> Origin {
    Origin::new(move |request: Request<_>, _| {
        let is_bad = request.headers().contains_key("x-bad");
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            match is_bad {
                true if status == "panic" => panic!("scripted"),
                true if status == "reset" => Err("connection reset".into()),
                true => Ok(page(&[(":status", status)], "")),
                false => Ok(page(&[("cache-control", "max-age=60")], "")),
            }
        }
    })
}

/// The statuses of the waiters for a bad request's load, and of its sender.
async fn attacked(cache: &HttpCache<Origin>) -> (u16, Vec<u16>) {
    let mut asked = Vec::new();
    let bad = [("x-bad", "1")];
    for nth in 0..48 {
        let cache = cache.clone();
        asked.push(tokio::spawn(async move {
            let fields: &[_] = if nth == 0 { &bad } else { &[] };
            get(&cache, fields).await.status().as_u16()
        }));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut statuses = Vec::new();
    for asked in asked {
        statuses.push(asked.await.unwrap());
    }
    (statuses.remove(0), statuses)
}

#[tokio::test(start_paused = true)]
async fn no_waiter_gets_the_slow_error_of_another_request() {
    for status in ["500", "502", "503", "panic", "reset"] {
        let origin = breakable(status);
        let (bad, others) = attacked(&cached(&memory().build().unwrap(), &origin)).await;
        assert!(bad >= 500);
        assert_eq!(others, [200; 47], "{status}");
        assert_eq!(origin.asked(), 2, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_keys_of_ones_own_an_error_of_one_request_is_given_to_no_other() {
    for status in ["400", "403", "500", "503", "panic", "reset"] {
        let origin = breakable(status);
        let layer =
            HttpCacheLayer::keyed(MemoryStore::new(10), RequestKey::path()).build().unwrap();
        let (bad, others) = attacked(&cached(&layer, &origin)).await;
        assert!(bad >= 400);
        assert_eq!(others, [200; 47], "{status}");
        assert_eq!(origin.asked(), 2, "{status}");
    }
}

/// What one request gets, with these fields, that comes as number `place` among bad ones.
async fn among_bad_requests(place: usize, bad_ones: usize, fields: &[(&str, &str)]) -> u16 {
    let origin = breakable("500");
    let cache = cached(&memory().build().unwrap(), &origin);
    let mut bad = Vec::new();
    for _ in 0..place {
        let cache = cache.clone();
        bad.push(tokio::spawn(async move { get(&cache, &[("x-bad", "1")]).await.status() }));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mine = get(&cache, fields);
    let later = async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        join_all((place..bad_ones).map(async |_| get(&cache, &[("x-bad", "1")]).await)).await
    };
    let (mine, _) = tokio::join!(mine, later);
    join_all(bad).await;
    mine.status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn requests_that_an_origin_answers_with_errors_deny_no_page_to_others() {
    for fields in [&[][..], &[("cookie", "a=b")], &[("authorization", "Bearer x")]] {
        for place in 1..8 {
            assert_eq!(among_bad_requests(place, 8, fields).await, 200, "{fields:?} as {place}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_with_credentials_gets_the_error_of_another() {
    for name in ["cookie", "authorization"] {
        assert_eq!(among_bad_requests(100, 100, &[(name, "x")]).await, 200, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_origin_with_errors_only_is_asked_by_few_of_its_waiters() {
    let origin = Origin::new(async |_, _| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(page(&[(":status", "500")], ""))
    });
    let cache = cached(&memory().build().unwrap(), &origin);
    let answers = join_all((0..1_000).map(async |_| get(&cache, &[]).await.status())).await;
    assert_eq!(answers, [500; 1_000]);
    assert!((3..=18).contains(&origin.asked()), "{}", origin.asked());
}

/// No request was sent, so no request caused the failure.
#[tokio::test(start_paused = true)]
async fn an_origin_that_refuses_connections_is_asked_once_for_all_waiters() {
    let origin = Origin::new(async |_, _| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into())
    });
    let (first, others) = attacked(&cached(&memory().build().unwrap(), &origin)).await;
    assert_eq!((first, others), (502, vec![502; 47]));
    assert_eq!(origin.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_window_for_disconnections_replaces_no_error_that_the_origin_answers() {
    for (terms, failure, status) in [
        ("max-age=60", "reset", 200),
        ("max-age=60", "503", 503),
        ("max-age=60, stale-if-error=60", "503", 200),
        ("max-age=60, must-revalidate", "reset", 502),
        ("no-cache", "reset", 502),
    ] {
        let origin = Origin::new(move |_, nth| async move {
            match failure {
                _ if nth == 0 => Ok(page(&[("cache-control", terms), ("etag", "\"1\"")], "old")),
                "reset" => Err("connection reset".into()),
                status => Ok(page(&[(":status", status)], "")),
            }
        });
        let cache = cached(
            &memory().stale_if_disconnected(Duration::from_secs(60)).build().unwrap(),
            &origin,
        );
        get(&cache, &[]).await;
        pass(61).await;
        let answers = join_all((0..3).map(async |_| get(&cache, &[]).await.status())).await;
        assert_eq!(answers, [status; 3], "{terms} {failure}");
        pass(120).await;
        assert!(get(&cache, &[]).await.status() != 200, "the window is over: {terms} {failure}");
    }
}

/// What `victims` clients get in ten seconds, while others ask again and again for an error that takes half
/// a second: how many of their requests were denied, and how often their requests reached the origin.
async fn beside_attackers(attackers: usize, victims: usize, fields: &[(&str, &str)]) -> [usize; 2] {
    let of_victims = Arc::new(AtomicUsize::new(0));
    let origin = {
        let of_victims = Arc::clone(&of_victims);
        Origin::new(move |request: Request<_>, _| {
            let is_bad = request.headers().contains_key("x-bad");
            of_victims.fetch_add(usize::from(!is_bad), Ordering::Relaxed);
            async move {
                tokio::time::sleep(Duration::from_millis(if is_bad { 500 } else { 20 })).await;
                Ok(match is_bad {
                    true => page(&[(":status", "500")], ""),
                    false => page(&[("cache-control", "max-age=60")], ""),
                })
            }
        })
    };
    let cache = cached(&memory().build().unwrap(), &origin);
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    let client = async |fields: Vec<(&str, &str)>, pause| {
        let mut denied = 0;
        while tokio::time::Instant::now() < until {
            denied += usize::from(get(&cache, &fields).await.status() != 200);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        denied
    };
    let bad = (0..attackers).map(|_| client(vec![("x-bad", "1")], 50));
    let good = (0..victims).map(|_| client(fields.to_vec(), 500));
    let (_, denied) = tokio::join!(join_all(bad), join_all(good));
    [denied.into_iter().sum(), of_victims.load(Ordering::Relaxed)]
}

#[tokio::test(start_paused = true)]
async fn the_first_success_beside_slow_errors_is_stored_and_given_to_all() {
    for (attackers, victims) in [(3, 20), (20, 20), (20, 60), (60, 20)] {
        for fields in [&[][..], &[("cookie", "a=b")]] {
            let [denied, of_victims] = beside_attackers(attackers, victims, fields).await;
            assert_eq!(denied, 0, "{attackers} beside {victims} with {fields:?}");
            assert!(of_victims <= 20, "{of_victims}: {attackers} beside {victims} with {fields:?}");
        }
    }
}

/// A status that a cache must not store (RFC 6585), or that answers a condition.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_not_loaded_by_each_waiter_and_never_stored() {
    for status in ["412", "416", "428", "429", "431", "511"] {
        for is_keyed in [false, true] {
            let origin = Origin::new(async move |_, _| {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(page(&[(":status", status), ("cache-control", "max-age=60")], ""))
            });
            let cache = match is_keyed {
                false => cached(&memory().build().unwrap(), &origin),
                true => {
                    let layer = HttpCacheLayer::keyed(MemoryStore::new(10), RequestKey::path());
                    cached(&layer.ttl(Duration::from_secs(60)).build().unwrap(), &origin)
                }
            };
            let answers = join_all((0..100).map(async |_| get(&cache, &[]).await.status())).await;
            assert!(answers.iter().all(|it| it.as_str() == status), "{status}: {answers:?}");
            let asked = origin.asked();
            assert!((2..=18).contains(&asked), "{status}: {asked}");
            get(&cache, &[]).await;
            assert!(origin.asked() > asked, "{status} is not stored");
        }
    }
}
