//! Each request counts once, and says how it was answered.

use bellwether::{BoxError, BypassReason, CacheStatus};
use bellwether_body::CacheBody;
use futures_util::future::join_all;
use http::{Request, Response};
use tonic::body::Body;
use tower::{Layer, ServiceExt, service_fn};

use crate::catalog::{CHANGES, Catalog, PRODUCT};
use crate::raw::request;
use crate::server::layer;

fn status(answer: &Response<CacheBody<Body>>) -> &CacheStatus {
    answer.extensions().get().expect("a status")
}

#[tokio::test(start_paused = true)]
async fn each_request_counts_once_and_its_response_says_how() {
    let layer = layer().name("products").build().unwrap();
    let service = layer.layer(Catalog::numbered());
    let ask = |method| {
        let service = service.clone();
        async move { service.oneshot(request(method, "a")).await.unwrap() }
    };
    let answers = join_all((0..10).map(|_| ask(PRODUCT))).await;
    let led = answers.iter().filter(|it| matches!(status(it), CacheStatus::Led { .. })).count();
    assert_eq!(led, 1, "{answers:?}");
    assert!(matches!(status(&ask(PRODUCT).await), CacheStatus::Hit { .. }));
    assert_eq!(*status(&ask(CHANGES).await), CacheStatus::Bypass(BypassReason::NoKey));
    let stats = layer.stats();
    let counted: Vec<_> = stats.requests.by_name().filter(|(_, count)| *count > 0).collect();
    assert_eq!(
        counted,
        [("hit_local", 1), ("led_stored", 1), ("collapsed_local", 9), ("bypassed_no_key", 1)]
    );
    assert_eq!((stats.loads.miss, stats.loads.no_key), (1, 1));
    assert_eq!(stats.running_loads(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_past_the_cache_that_fails_counts_as_a_failure() {
    let layer = layer().build().unwrap();
    let refused = async |_: Request<Body>| Err::<Response<Body>, _>(BoxError::from("down"));
    layer.layer(service_fn(refused)).oneshot(request(CHANGES, "a")).await.unwrap();
    let requests = layer.stats().requests;
    assert_eq!((requests.failed_loader, requests.total()), (1, 1), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_is_off_calls_the_handler_each_time() {
    let layer = layer().enabled(false).build().unwrap();
    let service = layer.layer(Catalog::numbered());
    for _ in 0..2 {
        let answer = service.clone().oneshot(request(PRODUCT, "a")).await.unwrap();
        assert_eq!(*status(&answer), CacheStatus::Bypass(BypassReason::Disabled));
    }
    let stats = layer.stats();
    assert_eq!((stats.requests.bypassed_disabled, stats.loads.disabled), (2, 2));
}
