//! Unsafe requests whose clients leave, or that get no response.

use std::future::pending;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::middleware::{Next, from_fn};
use axum::routing::get as route;
use bellwether_testkit::servers::Reply;
use futures_util::FutureExt;
use http::{Request, StatusCode};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio_test::{assert_pending, task};
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt};

use crate::origin::{
    Answer, Origin, ask, cached, is_hit, memory, page, patient_redis, plain, request, says,
};

const FRESH: (&str, &str) =
    ("cache-control", "max-age=60, stale-while-revalidate=60, stale-if-error=60");

/// As many changes as one layer finishes at once after their clients have left.
const MOST: usize = 64;

/// A cached origin that answers a change with this status once it may.
struct Shop {
    cache: bellwether_http::HttpCache<Origin>,
    origin: Origin,
    may_answer: Arc<Semaphore>,
}

impl Shop {
    fn with_status(status: &'static str) -> Self {
        let may_answer = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&may_answer);
        let origin = Origin::new(move |request: Request<_>, nth| {
            let gate = Arc::clone(&gate);
            async move {
                if request.method() == "GET" {
                    return Ok(page(&[FRESH], nth.to_string()));
                }
                gate.acquire().await.unwrap().forget();
                assert_ne!(status, "panic");
                match status {
                    "none" => Err("the connection was reset".into()),
                    status => Ok(page(&[(":status", status)], "")),
                }
            }
        });
        Self { cache: cached(&memory().build().unwrap(), &origin), origin, may_answer }
    }

    async fn get(&self, uri: &str) -> Answer {
        ask(&self.cache, "GET", uri, &[]).await
    }

    /// Stores a response, and leaves a change of it alone while it runs.
    async fn leave(&self, uri: &str) {
        self.get(uri).await;
        let mut change = task::spawn(self.cache.clone().call(request("DELETE", uri, &[])));
        assert_pending!(change.poll());
        drop(change);
        settle().await;
    }

    /// Lets changes be answered.
    async fn answer(&self, changes: usize) {
        self.may_answer.add_permits(changes);
        settle().await;
    }
}

/// Lets tasks run that are ready.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

const ITEM: &str = "http://shop/item";

#[tokio::test(start_paused = true)]
async fn a_change_whose_client_has_left_invalidates_once_it_succeeds() {
    for status in ["200", "204", "303"] {
        let shop = Shop::with_status(status);
        shop.leave("https://shop/item").await;
        shop.leave(ITEM).await;
        assert!(is_hit(&shop.get(ITEM).await), "it has not succeeded yet");
        shop.answer(2).await;
        let after = shop.get(ITEM).await;
        assert!(says(&after, "fwd=uri-miss"), "{status}: {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_client_has_left_and_that_is_refused_invalidates_nothing() {
    for status in ["400", "401", "403", "404", "500"] {
        let shop = Shop::with_status(status);
        shop.leave(ITEM).await;
        shop.answer(1).await;
        assert!(is_hit(&shop.get(ITEM).await), "{status}");
    }
}

/// It may have changed something, and old content is better than none.
#[tokio::test(start_paused = true)]
async fn a_change_without_a_response_makes_its_target_stale() {
    for status in ["none", "panic"] {
        let shop = Shop::with_status(status);
        shop.leave(ITEM).await;
        shop.answer(1).await;
        let after = shop.get(ITEM).await;
        assert!(says(&after, "detail=revalidating"), "{status}: {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_never_ends_makes_its_target_stale_after_the_load_timeout() {
    let shop = Shop::with_status("200");
    shop.leave(ITEM).await;
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert!(is_hit(&shop.get(ITEM).await));
    tokio::time::sleep(Duration::from_secs(2)).await;
    settle().await;
    assert!(says(&shop.get(ITEM).await, "detail=revalidating"));
}

#[tokio::test(start_paused = true)]
async fn beyond_the_bound_a_change_whose_client_has_left_makes_its_target_stale_at_once() {
    let shop = Shop::with_status("200");
    for nth in 0..MOST {
        shop.leave(&format!("http://shop/{nth}")).await;
    }
    shop.leave(ITEM).await;
    assert!(says(&shop.get(ITEM).await, "detail=revalidating"));
    shop.answer(MOST).await;
    settle().await;
    shop.leave("http://shop/later").await;
    assert!(is_hit(&shop.get("http://shop/later").await), "others have ended");
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_never_polled_is_not_sent_and_changes_nothing() {
    let shop = Shop::with_status("200");
    shop.get(ITEM).await;
    drop(shop.cache.clone().call(request("DELETE", ITEM, &[])));
    shop.answer(1).await;
    assert_eq!(shop.origin.asked(), 1);
    assert!(is_hit(&shop.get(ITEM).await));
}

/// The origin is not ready for it before its client leaves.
#[tokio::test(start_paused = true)]
async fn a_change_that_was_never_sent_changes_nothing() {
    let origin = Origin::counting(&[FRESH]);
    let limit = GlobalConcurrencyLimitLayer::new(1);
    let limited = limit.layer(origin.clone());
    let cache = memory().build().unwrap().layer(limited.clone());
    let get = async || cache.clone().oneshot(request("GET", ITEM, &[])).await.unwrap();
    get().await;
    let mut busy = limited;
    busy.ready().await.unwrap();
    let mut change = task::spawn(cache.clone().call(request("DELETE", ITEM, &[])));
    assert_pending!(change.poll());
    drop(change);
    drop(busy);
    settle().await;
    assert_eq!(origin.asked(), 1);
    assert!(is_hit(&get().await));
    let mut change = task::spawn(cache.clone().call(request("DELETE", ITEM, &[])));
    _ = change.poll();
    settle().await;
    assert_eq!(origin.asked(), 2);
}

/// Middleware catches the panic, and may poll what has panicked again.
#[tokio::test(start_paused = true)]
async fn a_change_that_has_panicked_is_not_polled_again() {
    let was_resumed = Arc::new(AtomicBool::new(false));
    let (resumed, report) = (Arc::clone(&was_resumed), panic::take_hook());
    panic::set_hook(Box::new(move |info| {
        if info.to_string().contains("resumed after panicking") {
            resumed.store(true, Ordering::SeqCst);
        }
        report(info);
    }));
    let shop = Shop::with_status("panic");
    shop.get(ITEM).await;
    shop.may_answer.add_permits(1);
    let change = shop.cache.clone().call(request("DELETE", ITEM, &[]));
    assert!(AssertUnwindSafe(change).catch_unwind().await.is_err());
    settle().await;
    assert!(!was_resumed.load(Ordering::SeqCst));
    assert_eq!(shop.origin.asked(), 2);
    assert!(says(&shop.get(ITEM).await, "detail=revalidating"));
}

/// Clients without rights, whose changes nothing refuses in time.
#[tokio::test]
async fn changes_whose_clients_have_left_write_nothing_where_nothing_is_stored() {
    let (server, store) = patient_redis().await;
    let origin = Origin::new(async |request: Request<_>, _| match request.method().as_str() {
        "DELETE" => pending().await,
        _ => Ok(page(&[("cache-control", "max-age=600, stale-if-error=600")], "")),
    });
    let cache = cached(&plain(store).build().unwrap(), &origin);
    let stored = ["http://shop/first", "http://shop/last"];
    for uri in stored {
        ask(&cache, "GET", uri, &[]).await;
    }
    let names = || match server.command(&["DBSIZE"]) {
        Reply::Integer(names) => names,
        other => panic!("no size: {other:?}"),
    };
    let before = names();
    let others = (0..3 * MOST).map(|nth| format!("http://shop/{nth}"));
    for uri in others.chain([stored[1].to_owned()]) {
        let mut change = task::spawn(cache.clone().call(request("DELETE", &uri, &[])));
        assert_pending!(change.poll());
    }
    until(async || !says(&ask(&cache, "HEAD", stored[1], &[]).await, "hit")).await;
    until(async || names() <= before + 1).await;
    assert!(is_hit(&ask(&cache, "GET", stored[0], &[]).await));
}

async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("it becomes so");
}

/// Notifies when a server drops the request that it belongs to.
struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test]
async fn a_client_that_closes_its_connection_purges_only_what_it_has_the_right_to_change() {
    for (status, is_kept) in [(StatusCode::UNAUTHORIZED, true), (StatusCode::NO_CONTENT, false)] {
        let [arrived, left, may_answer, answered] = [(); 4].map(|()| Arc::new(Notify::new()));
        let signals = [&arrived, &may_answer, &answered].map(Arc::clone);
        let change = async move || {
            let [arrived, may_answer, answered] = signals;
            arrived.notify_one();
            may_answer.notified().await;
            answered.notify_one();
            status
        };
        let news = async || ([("cache-control", "max-age=60, stale-if-error=60")], "news");
        let app: Router = Router::new()
            .route("/news", route(news).delete(change))
            .layer(memory().build().unwrap());
        let served = app.clone().layer(from_fn({
            let left = Arc::clone(&left);
            move |request: axum::extract::Request, next: Next| {
                let guard = NotifyOnDrop(Arc::clone(&left));
                async move {
                    let response = next.run(request).await;
                    drop(guard);
                    response
                }
            }
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, served).await });
        let is_hit = async || {
            let request = request("GET", "/news", &[("host", "shop")]);
            let answer = app.clone().oneshot(request).await.unwrap();
            answer.headers()["cache-status"].to_str().unwrap().contains("; hit")
        };
        is_hit().await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"DELETE /news HTTP/1.1\r\nHost: shop\r\n\r\n").await.unwrap();
        arrived.notified().await;
        drop(client);
        left.notified().await;
        settle().await;
        assert!(is_hit().await, "the change has not succeeded yet");
        may_answer.notify_one();
        answered.notified().await;
        settle().await;
        assert_eq!(is_hit().await, is_kept, "{status}");
    }
}
