//! Error responses of the cache itself.

use std::future::pending;
use std::time::Duration;

use bellwether::Wait;
use http::StatusCode;

use crate::origin::{Origin, ask, cached, field, get, memory, text};

#[tokio::test(start_paused = true)]
async fn an_origin_that_gives_no_answer_is_a_bad_gateway_for_all_waiters() {
    let origin = Origin::new(async |_, _| Err("password of the database".into()));
    let cache = cached(&memory().build().unwrap(), &origin);
    let (one, other) = tokio::join!(get(&cache, &[]), get(&cache, &[]));
    for answer in [one, other] {
        assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
        assert!(!text(answer).await.contains("password"), "the origin's error is not for clients");
    }
    assert_eq!(origin.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_takes_too_long_is_a_gateway_timeout() {
    let origin = Origin::new(async |_, _| pending().await);
    let layer = memory().load_timeout(Duration::from_secs(1)).build().unwrap();
    let answer = get(&cached(&layer, &origin), &[]).await;
    assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(field(&answer, "retry-after"), "1");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_runs_out_is_a_gateway_timeout() {
    let origin = Origin::new(async |_, _| pending().await);
    let layer = memory().wait(Wait::at_most(Duration::from_secs(1))).build().unwrap();
    let cache = cached(&layer, &origin);
    let (_, answer) = tokio::join!(get(&cache, &[]), get(&cache, &[]));
    assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(field(&answer, "retry-after"), "1");
}

#[tokio::test(start_paused = true)]
async fn a_request_beyond_the_bound_gets_503_with_retry_after() {
    let origin = Origin::new(async |_, _| pending().await);
    let layer = memory().max_flights(1).load_timeout(Duration::from_secs(1)).build().unwrap();
    let cache = cached(&layer, &origin);
    let other = ask(&cache, "GET", "http://shop/other", &[]);
    let (_, answer) = tokio::join!(get(&cache, &[]), other);
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(field(&answer, "retry-after"), "1");
    assert_eq!(field(&answer, "cache-status"), "bellwether; fwd=miss; detail=full");
}
