//! What an error says about its key: the classes of errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bellwether::{
    Cache, CacheErrorKind, CacheStatus, Error, ErrorClass, LoadLocation, MemoryStore,
};
use bellwether_testkit::caches::promises::not_found_is_shared;
use bellwether_testkit::caches::{MINUTE, SECOND, idle, kind_of, put, remembering_layer};
use bellwether_testkit::loaders::{End, Loader, Refusal};
use futures_util::future::join_all;
use tower::{Layer, ServiceBuilder, ServiceExt};

use crate::support::store::{processes, remote};

type Answered = (Result<usize, Error<Refusal>>, CacheStatus);

/// What a process has whose loader's errors are all of this class.
fn process(store: &MemoryStore, class: ErrorClass) -> Cache<u64, usize> {
    Cache::builder("item", remote(store))
        .ttl(MINUTE)
        .not_found_ttl(SECOND)
        .stale_if_error(MINUTE)
        .jitter(0.0)
        .classify_error(move |_: &Refusal| class)
        .describe_failures(|_: &Refusal| "no row".to_owned())
        .build()
        .expect("options")
}

async fn ask(cache: &Cache<u64, usize>, loader: &Loader) -> Answered {
    let loader = loader.clone();
    cache.get_or_load(1, async move || loader.oneshot(1).await).with_status().await
}

/// A loader whose loads fail, each after a second.
fn failing() -> Loader {
    let loader = Loader::taking(SECOND);
    loader.ends_by(End::Fail);
    loader
}

#[tokio::test(start_paused = true)]
async fn not_found_is_an_answer_that_all_callers_of_the_fleet_share() {
    let loader = failing();
    let store = MemoryStore::new(10);
    let fleet = [(); 2].map(|()| process(&store, ErrorClass::NotFound));
    let calls = join_all((0..10).map(|nth| ask(&fleet[nth % 2], &loader))).await;
    assert!(calls.iter().all(|(answer, _)| answer.as_ref().is_err_and(Error::is_not_found)));
    assert_eq!(loader.loads(), 1);
    let is_remote = |status: &CacheStatus| {
        matches!(status, CacheStatus::Collapsed { place: LoadLocation::Remote, .. })
    };
    let (remote_calls, own): (Vec<_>, Vec<_>) =
        calls.iter().partition(|(_, status)| is_remote(status));
    assert_eq!((remote_calls.len(), own.len()), (5, 5), "{calls:?}");
    // Another process has its text only.
    assert!(own.iter().all(|(it, _)| it.as_ref().unwrap_err().load() == Some(&Refusal(1))));
    not_found_is_shared(&processes(remote, &MemoryStore::new(10))).await;
}

/// An entry as the store has it from another process: without the error itself.
#[tokio::test(start_paused = true)]
async fn what_another_process_did_not_find_is_told_by_its_text() {
    let loader = failing();
    let store = MemoryStore::new(10);
    put(&store, 1, "no row", NOT_FOUND).await;
    let (answer, status) = ask(&process(&store, ErrorClass::NotFound), &loader).await;
    assert_eq!(kind_of(&answer), CacheErrorKind::NotFound);
    let error = answer.unwrap_err();
    assert!(error.is_not_found() && error.to_string().contains("no row"), "{error}");
    assert!(matches!(status, CacheStatus::Hit { .. }), "{status:?}");
    assert_eq!(loader.loads(), 0);
}

#[tokio::test(start_paused = true)]
async fn not_found_is_a_hit_until_its_ttl_ends() {
    let loader = failing();
    let cache = process(&MemoryStore::new(10), ErrorClass::NotFound);
    let (answer, status) = ask(&cache, &loader).await;
    assert_eq!(
        (answer.unwrap_err().load(), status),
        (Some(&Refusal(1)), CacheStatus::Led { stored: true })
    );
    let (answer, status) = ask(&cache, &loader).await;
    assert!(answer.unwrap_err().is_not_found());
    assert!(matches!(status, CacheStatus::Hit { .. }), "{status:?}");
    assert_eq!(cache.get(1).await.unwrap(), None);
    tokio::time::advance(SECOND).await;
    ask(&cache, &loader).await.0.unwrap_err();
    assert_eq!(loader.loads(), 2);
}

#[tokio::test(start_paused = true)]
async fn not_found_has_a_ttl_of_its_own_if_the_program_says_so() {
    let loader = failing();
    let cache = process(&MemoryStore::new(10), ErrorClass::NotFoundFor(MINUTE));
    ask(&cache, &loader).await.0.unwrap_err();
    tokio::time::advance(MINUTE / 2).await;
    assert!(ask(&cache, &loader).await.0.unwrap_err().is_not_found());
    assert_eq!(loader.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn not_found_replaces_an_older_value_which_no_failure_does() {
    for (class, gets_older) in [(ErrorClass::NotFound, false), (ErrorClass::Failure, true)] {
        let loader = Loader::new();
        let cache = process(&MemoryStore::new(10), class);
        assert_eq!(ask(&cache, &loader).await.0.unwrap(), 1);
        tokio::time::advance(MINUTE).await;
        loader.ends_by(End::Fail);
        for _ in 0..2 {
            assert_eq!(ask(&cache, &loader).await.0.is_ok(), gets_older, "{class:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_removes_not_found() {
    let loader = failing();
    let cache = process(&MemoryStore::new(10), ErrorClass::NotFoundFor(MINUTE));
    ask(&cache, &loader).await.0.unwrap_err();
    assert!(cache.invalidate(1).await.unwrap());
    loader.ends_by(End::Answer);
    assert_eq!(ask(&cache, &loader).await.0.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_batch_gets_not_found_as_a_single_call_does() {
    let cache = process(&MemoryStore::new(10), ErrorClass::NotFound);
    let calls = Arc::new(AtomicUsize::new(0));
    for _ in 0..2 {
        let counted = Arc::clone(&calls);
        let load = async move |parts: Vec<u64>| {
            counted.fetch_add(1, SeqCst);
            Ok(parts.into_iter().map(|_| Err::<usize, _>(Refusal(7))).collect::<Vec<_>>())
        };
        for answer in cache.get_or_load_many([1_u64, 2], load).await {
            assert!(answer.unwrap_err().is_not_found());
        }
    }
    assert_eq!(calls.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_told_to_its_caller_only_and_its_waiters_load_at_once() {
    let loader = failing();
    let cache = process(&MemoryStore::new(10), ErrorClass::Retry);
    let calls = join_all((0..4).map(|_| ask(&cache, &loader))).await;
    let numbers: Vec<_> = calls
        .iter()
        .filter_map(|(answer, _)| answer.as_ref().unwrap_err().load().map(|refusal| refusal.0))
        .collect();
    assert_eq!(numbers.len(), 4, "{calls:?}");
    assert_eq!(loader.loads(), 4, "each caller has loaded for itself: {numbers:?}");
    loader.ends_by(End::Answer);
    assert_eq!(ask(&cache, &loader).await.0.unwrap(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_not_remembered_is_for_the_waiters_of_its_load() {
    let loader = failing();
    let cache = process(&MemoryStore::new(10), ErrorClass::NotRemembered);
    for round in 1..4 {
        let calls = join_all((0..4).map(|_| ask(&cache, &loader))).await;
        for (answer, _) in calls {
            assert_eq!(answer.unwrap_err().load(), Some(&Refusal(round)));
        }
    }
    assert_eq!(loader.loads(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_first_success_of_a_probe_ends_the_cooldown_for_all_processes() {
    let loader = Loader::new();
    loader.ends_by(End::Fail);
    let store = MemoryStore::new(10);
    let fleet = [(); 2].map(|()| process(&store, ErrorClass::SourceFailure));
    ask(&fleet[0], &loader).await.0.unwrap_err();
    loader.ends_by(End::Answer);
    assert_eq!(
        kind_of(&ask(&fleet[1], &loader).await.0),
        CacheErrorKind::LoadFailed(bellwether::FailureCause::Error)
    );
    // The first probe is let through after 100 ms, and the window would last a second.
    tokio::time::sleep(SECOND / 10).await;
    let calls = join_all((0..10).map(|nth| ask(&fleet[nth % 2], &loader))).await;
    assert!(calls.iter().any(|(answer, _)| answer.is_ok()), "{calls:?}");
    idle().await;
    for cache in &fleet {
        assert_eq!(ask(cache, &loader).await.0.unwrap(), 2);
    }
}

/// The codec of errors that say "there is none".
const NOT_FOUND: u8 = 63;

/// `TimeoutLayer` makes a `BoxError` of each error.
#[tokio::test(start_paused = true)]
async fn a_class_is_found_through_the_error_of_middleware() {
    let loader = failing();
    let boxed = ServiceBuilder::new().timeout(MINUTE).service(loader.clone());
    let layer = remembering_layer(MemoryStore::new(10)).not_found_ttl(SECOND);
    let service =
        layer.classify_error(|_: &Refusal| ErrorClass::NotFound).build().unwrap().layer(boxed);
    for _ in 0..3 {
        assert!(service.clone().oneshot(1).await.unwrap_err().is_not_found());
    }
    assert_eq!(loader.loads(), 1);
}
