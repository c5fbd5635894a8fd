//! How long a caller waits for a load.

use std::sync::Arc;
use std::time::Duration;

use bellwether::Wait;
use bellwether_grpc::CachedMethod;
use futures_util::future::{join, join_all};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use tonic::Response;
use tower::Layer;

use crate::catalog::{Catalog, PRODUCT, Product, Wanted};
use crate::raw::{ask, request, with};
use crate::server::{MINUTE, layer, of};

/// A catalog that never answers, and reports when it was called.
fn silent() -> (Catalog, Arc<Semaphore>) {
    let called = Arc::new(Semaphore::new(0));
    let told = Arc::clone(&called);
    let catalog = Catalog::new(move |_| {
        told.add_permits(1);
        std::future::pending()
    });
    (catalog, called)
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_deadline_of_the_caller() {
    let (catalog, called) = silent();
    let service =
        layer().wait(Wait::at_most(Duration::from_secs(5))).build().unwrap().layer(catalog);
    let first = tokio::spawn({
        let service = service.clone();
        async move { ask(&service, request(PRODUCT, "a")).await }
    });
    called.acquire().await.unwrap().forget();
    let timeouts = [("500m", 500), ("2S", 2_000), ("1H", 5_000), ("soon", 5_000)];
    for (timeout, millis) in timeouts {
        let begun = Instant::now();
        let seen = ask(&service, with(request(PRODUCT, "a"), &[("grpc-timeout", timeout)])).await;
        let waited = begun.elapsed();
        let by = Duration::from_millis(millis);
        assert!(waited <= by && waited + Duration::from_millis(20) > by, "{timeout}: {waited:?}");
        // A wait limit below the caller's deadline ends the wait.
        let status = if millis < 5_000 { 4 } else { 14 };
        assert_eq!(seen.grpc_status(), status, "{timeout}");
    }
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn the_wait_of_a_caller_for_its_own_load_ends_with_its_deadline() {
    let (catalog, _called) = silent();
    let service = layer().build().unwrap().layer(catalog);
    for (timeout, millis) in [("10m", 10), ("500m", 500)] {
        let begun = Instant::now();
        let seen =
            ask(&service, with(request(PRODUCT, timeout), &[("grpc-timeout", timeout)])).await;
        assert_eq!(seen.grpc_status(), 4);
        assert!(begun.elapsed() <= Duration::from_millis(millis), "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_fails_no_call_that_is_fast() {
    let called = Arc::new(Semaphore::new(0));
    let told = Arc::clone(&called);
    let catalog = Catalog::new(move |asked: tonic::Request<Wanted>| {
        told.add_permits(1);
        let takes = if asked.get_ref().what == "slow" { 6_000 } else { 50 };
        async move {
            sleep(Duration::from_millis(takes)).await;
            Ok(Response::new(Product::of("done")))
        }
    });
    let service = layer().build().unwrap().layer(catalog);
    assert_eq!(ask(&service, request(PRODUCT, "slow")).await.grpc_status(), 0);
    let call = || ask(&service, with(request(PRODUCT, "fast"), &[("grpc-timeout", "500m")]));
    let others = async {
        called.acquire_many(2).await.unwrap().forget();
        join_all((0..19).map(|_| call())).await
    };
    let (leader, others) = join(call(), others).await;
    for seen in others.into_iter().chain([leader]) {
        assert_eq!(seen.grpc_status(), 0);
    }
}

/// A load is for all waiters, so it has the deadline of none.
#[tokio::test]
async fn the_handler_sees_a_callers_deadline_only_for_a_bypass() {
    let catalog = Catalog::new(|asked: tonic::Request<_>| {
        let timeout = asked.metadata().get("grpc-timeout").map(|timeout| timeout.to_str().unwrap());
        let said = Product::of(timeout.unwrap_or("none"));
        std::future::ready(Ok(Response::new(said)))
    });
    let service = of(CachedMethod::fresh_for(MINUTE)).build().unwrap().layer(catalog);
    let fields = [("grpc-timeout", "9S")];
    assert_eq!(ask(&service, with(request(PRODUCT, "a"), &fields)).await.content(), "none");
    let fields = [("grpc-timeout", "9S"), ("authorization", "me")];
    assert_eq!(ask(&service, with(request(PRODUCT, "a"), &fields)).await.content(), "9S");
}
