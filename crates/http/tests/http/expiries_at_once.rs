//! An expiry of variants beside loads and beside other expiries.

use std::time::Duration;

use bellwether::MemoryStore;
use bellwether_test::faulty::{FaultyStore, Operation};
use futures_util::FutureExt;
use futures_util::future::join_all;
use http::StatusCode;
use tokio::join;
use tokio::runtime::Runtime;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::expired_variants::{
    ENGLISH, GERMAN, VARY, WINDOW, in_the_background, is_stale, uri, with_variants,
};
use crate::origin::{Origin, cached, field, get, memory, page, plain, says, text};

/// An origin that takes a second for a response.
fn slow(cache_control: &'static str) -> Origin {
    Origin::new(async move |_, nth| {
        sleep(Duration::from_secs(1)).await;
        Ok(page(&[("cache-control", cache_control), ("vary", "accept-language")], nth.to_string()))
    })
}

const WITH_WINDOW: &str = "max-age=60, stale-while-revalidate=60";

#[tokio::test(start_paused = true)]
async fn a_request_after_an_expiry_does_not_take_the_load_from_before_it_for_a_new_one() {
    for is_other_process in [false, true] {
        let origin = slow(WITH_WINDOW);
        let store = MemoryStore::new(100);
        let layer = plain(store.clone()).build().unwrap();
        let cache = cached(&layer, &origin);
        let late = if is_other_process {
            cached(&plain(store).build().unwrap(), &origin)
        } else {
            cache.clone()
        };
        get(&cache, &[GERMAN]).await;
        let handle = layer.handle();
        let expiry_and_request = async {
            sleep(Duration::from_millis(500)).await;
            handle.expire(&uri()).await.unwrap();
            get(&late, &[ENGLISH]).await
        };
        let (before, after) = join!(get(&cache, &[ENGLISH]), expiry_and_request);
        assert_eq!((text(before).await, text(after).await), ("1".to_owned(), "2".to_owned()));
        let new = get(&late, &[ENGLISH]).await;
        assert!(!says(&new, "detail=revalidating"), "{}", field(&new, "cache-status"));
        assert_eq!(text(new).await, "2");
    }
}

/// It has no stale window.
#[tokio::test(start_paused = true)]
async fn a_request_after_an_expiry_does_not_share_a_response_from_before_it() {
    let origin = Origin::new(async |_, nth| {
        sleep(Duration::from_secs(1)).await;
        let status = if nth == 0 { "200" } else { "404" };
        let fields = [("cache-control", "max-age=60"), ("vary", "accept-language")];
        Ok(page(&[&fields[..], &[(":status", status)]].concat(), nth.to_string()))
    });
    let layer = memory().build().unwrap();
    let cache = cached(&layer, &origin);
    get(&cache, &[GERMAN]).await;
    let handle = layer.handle();
    let expiry_and_request = async {
        sleep(Duration::from_millis(500)).await;
        handle.expire(&uri()).await.unwrap();
        join!(get(&cache, &[ENGLISH]), get(&cache, &[ENGLISH]))
    };
    let (before, (one, other)) = join!(get(&cache, &[ENGLISH]), expiry_and_request);
    assert_eq!((before.status(), text(before).await), (StatusCode::NOT_FOUND, "1".to_owned()));
    assert_eq!((text(one).await, text(other).await), ("2".to_owned(), "2".to_owned()));
    assert_eq!(origin.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn two_expiries_at_once_make_the_variants_stale() {
    let store = FaultyStore::new(MemoryStore::new(100));
    let layer = plain(store.clone()).build().unwrap();
    let cache = with_variants(&layer, &Origin::echoing(), &[WINDOW]).await;
    let other_process = plain(store.clone()).build().unwrap();
    let held = store.on(Operation::ExpireTag).nth(1).do_it_and_hold();
    let before = store.calls(Operation::ExpireTag);
    let first = async { layer.handle().expire(&uri()).await.unwrap() };
    let second = async {
        held.reached().await;
        other_process.handle().expire(&uri()).await.unwrap()
    };
    let both_have_asked = async {
        while store.calls(Operation::ExpireTag) < before + 2 {
            yield_now().await;
        }
        held.open();
    };
    assert_eq!(join!(first, second, both_have_asked), (true, true, ()));
    for (language, old) in [(GERMAN, "0"), (ENGLISH, "1")] {
        is_stale(get(&cache, &[VARY, WINDOW, language]).await, old).await;
    }
    in_the_background().await;
}

#[tokio::test(start_paused = true)]
async fn expiries_by_many_processes_at_once_make_the_variants_stale() {
    let store = FaultyStore::new(MemoryStore::new(100)).remote();
    let layer = plain(store.clone());
    let cache = with_variants(&layer.build().unwrap(), &Origin::echoing(), &[WINDOW]).await;
    store.on(Operation::ExpireTag).delay(Duration::from_millis(10));
    let processes: Vec<_> = (0..15).map(|_| plain(store.clone()).build().unwrap()).collect();
    let expiries = processes.iter().map(async |layer| layer.handle().expire(&uri()).await.unwrap());
    assert_eq!(join_all(expiries).await, [true; 15]);
    store.heal();
    assert_eq!(store.calls(Operation::Expire), 30, "of a scheme that has no response");
    for (language, old) in [(GERMAN, "0"), (ENGLISH, "1")] {
        is_stale(get(&cache, &[VARY, WINDOW, language]).await, old).await;
    }
    in_the_background().await;
}

#[tokio::test(start_paused = true)]
async fn a_variant_that_is_newer_than_the_index_of_a_request_is_not_loaded_again() {
    let origin = slow(WITH_WINDOW);
    let store = FaultyStore::new(MemoryStore::new(100)).remote();
    let layer = plain(store.clone()).build().unwrap();
    let cache = cached(&layer, &origin);
    get(&cache, &[GERMAN]).await;
    // It has read the index, and not yet the variant.
    let held = store.on(Operation::Lookup).nth(2).hold();
    let late = async { get(&cache, &[ENGLISH]).await };
    let other = cached(&plain(store.inner().clone()).build().unwrap(), &origin);
    let meanwhile = async {
        held.reached().await;
        layer.handle().expire(&uri()).await.unwrap();
        get(&other, &[ENGLISH]).await;
        held.open();
    };
    let (late, ()) = join!(late, meanwhile);
    assert_eq!(text(late).await, "1");
    assert_eq!(text(get(&other, &[ENGLISH]).await).await, "1");
    assert_eq!(origin.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_late_does_not_remove_the_variant_of_a_newer_load() {
    let origin = Origin::echoing();
    let store = FaultyStore::new(MemoryStore::new(100)).remote();
    let layer = plain(store.clone()).build().unwrap();
    let cache = with_variants(&layer, &origin, &[]).await;
    layer.handle().expire(&uri()).await.unwrap();
    // It has found the variant expired, and is about to ask for the lease.
    let held = store.on(Operation::Acquire).nth(1).hold();
    let other = cached(&plain(store.inner().clone()).build().unwrap(), &origin);
    let meanwhile = async {
        held.reached().await;
        assert_eq!(text(get(&other, &[VARY, ENGLISH]).await).await, "2");
        held.open();
    };
    let (late, ()) = join!(get(&cache, &[VARY, ENGLISH]), meanwhile);
    assert_eq!(text(late).await, "2");
    assert_eq!(origin.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_requests_for_an_expired_variant_takes_few_leases() {
    let store = FaultyStore::new(MemoryStore::new(100)).remote();
    let layer = plain(store.clone()).build().unwrap();
    let cache = with_variants(&layer, &Origin::echoing(), &[WINDOW]).await;
    layer.handle().expire(&uri()).await.unwrap();
    let before = store.calls(Operation::Acquire);
    for answer in join_all((0..50).map(|_| get(&cache, &[VARY, WINDOW, ENGLISH]))).await {
        is_stale(answer, "1").await;
    }
    in_the_background().await;
    let acquired = store.calls(Operation::Acquire) - before;
    assert!(acquired <= 4, "{acquired} leases for 50 requests");
}

#[test]
fn an_expiry_of_variants_needs_no_runtime() {
    let runtime = Runtime::new().unwrap();
    let layer = memory().build().unwrap();
    let origin = Origin::echoing();
    let cache = runtime.block_on(with_variants(&layer, &origin, &[WINDOW]));
    let handle = layer.handle();
    assert!(handle.expire(&uri()).now_or_never().expect("it is in memory").unwrap());
    runtime.block_on(async {
        is_stale(get(&cache, &[VARY, WINDOW, ENGLISH]).await, "1").await;
    });
}
