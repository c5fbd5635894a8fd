//! One call: which caller loads, which wait, and what each is told.

use std::borrow::Cow;
use std::collections::HashSet;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;

use bellwether::codec::Cacheability;
use bellwether::store::Store;
use bellwether::{Cache, CacheErrorKind, CacheStatus, ErrorClass, Key, LoadLocation, MemoryStore};
use bellwether_testkit::caches::{MINUTE, SECOND, answer, cached, idle, key, kind_of};
use bellwether_testkit::loaders::{End, Loader, Refusal};
use futures_util::FutureExt;
use tokio::time::{Instant, advance};

use super::{ask, asked, builder, cache, ended};
use crate::support::store::{Operation, UNREACHABLE, local, remote};

#[tokio::test(start_paused = true)]
async fn concurrent_calls_share_one_load_and_are_told_so() {
    let loader = Loader::gated();
    let cache = cache(MemoryStore::new(10));
    let calls: Vec<_> = (0..10).map(|_| ask(&cache.clone(), 1, &loader)).collect();
    loader.has_begun(1).await;
    idle().await;
    loader.let_go(1);
    let mut led = 0;
    for call in calls {
        let (answer, status) = ended(call).await;
        assert_eq!(answer.unwrap(), 1);
        match status {
            CacheStatus::Led { stored: true } => led += 1,
            CacheStatus::Collapsed { place: LoadLocation::Local, .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((led, loader.loads(), cache.in_flight()), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_hit_needs_no_task_and_no_request() {
    let store = local(&MemoryStore::new(10));
    let cache = cache(store.clone());
    asked(&cache, 1, &Loader::new()).await.0.unwrap();
    let before = store.total_calls();
    let hit = cache.get_or_load(1, async || Ok::<_, Infallible>(0)).with_status();
    let (answer, status) = hit.now_or_never().expect("an answer at once");
    assert_eq!((answer.unwrap(), status), (1, CacheStatus::Hit { fresh_for: Some(MINUTE) }));
    assert_eq!(store.total_calls(), before);
}

#[test]
fn versions_of_a_cache_have_keys_of_their_own() {
    let cache = |name| Cache::<u64, u64>::builder(name, MemoryStore::new(1)).ttl(MINUTE);
    let caches = [
        cache("item"),
        cache("item").version(2),
        cache("item").version(3),
        cache("item.2"),
        cache("item.2").version(2),
    ];
    let keys = caches.map(|cache| cache.build().expect("options").key(42));
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    let again = cache("item").version(3).version(2).build().expect("options");
    assert_eq!(again.key(42), keys[1]);
}

#[test]
fn a_borrowed_form_names_the_same_key() {
    fn cache<K>() -> Cache<K, u64> {
        Cache::builder("item", MemoryStore::new(1)).ttl(MINUTE).build().expect("options")
    }
    let text = || "a".to_owned();
    assert_eq!(cache::<(String, String)>().key(("a", "a")), cache().key((text(), text())));
    assert_eq!(cache::<Option<String>>().key(Some("a")), cache().key(Some(text())));
    assert_eq!(cache::<Arc<str>>().key("a"), cache::<String>().key("a"));
    assert_eq!(cache::<Cow<'static, str>>().key("a"), cache::<Box<str>>().key("a"));
    assert_eq!(cache::<Vec<u64>>().key(&[1, 2][..]), cache().key(vec![1_u64, 2]));
    assert_eq!(cache::<Vec<u8>>().key(&b"a"[..]), cache().key(vec![b'a']));
}

#[tokio::test(start_paused = true)]
async fn a_cache_and_a_layer_with_its_keys_share_their_entries() {
    let store = MemoryStore::new(10);
    let loader = Loader::new();
    assert_eq!(answer(&cached(store.clone(), &loader), 1).await, 1);
    let (answer, status) = asked(&cache(store), 1, &loader).await;
    assert_eq!((answer.unwrap(), loader.loads()), (1, 1));
    assert!(matches!(status, CacheStatus::Hit { .. }));
}

#[tokio::test(start_paused = true)]
async fn callers_that_share_a_load_share_its_error() {
    let loader = Loader::gated();
    loader.ends_by(End::Fail);
    let cache = builder(MemoryStore::new(10))
        .classify_error(|_: &Refusal| ErrorClass::SourceFailure)
        .build()
        .expect("options");
    let calls: Vec<_> = (0..3).map(|_| ask(&cache, 1, &loader)).collect();
    loader.has_begun(1).await;
    idle().await;
    loader.let_go(1);
    for call in calls {
        let (answer, status) = ended(call).await;
        assert_eq!((answer.unwrap_err().load(), status), (Some(&Refusal(1)), CacheStatus::Failed));
    }
}

#[tokio::test(start_paused = true)]
async fn callers_with_another_type_of_error_wait_for_the_lease_and_get_the_value() {
    let loader = Loader::gated();
    let cache = cache(MemoryStore::new(10));
    let first = ask(&cache, 1, &loader);
    loader.has_begun(1).await;
    let other = tokio::spawn(cache.get_or_load(1, async || Err(std::fmt::Error)));
    idle().await;
    loader.let_go(1);
    assert_eq!((ended(first).await.0.unwrap(), ended(other).await.unwrap()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn names_and_parts_keep_values_apart() {
    let store = MemoryStore::new(10);
    let loader = Loader::new();
    let by_two: Cache<(String, String), usize> =
        Cache::builder("item", store.clone()).ttl(MINUTE).build().expect("options");
    let named: Cache<u64, String> =
        Cache::builder("name", store.clone()).ttl(MINUTE).build().expect("options");
    asked(&cache(store), 1, &loader).await.0.unwrap();
    assert_eq!(by_two.get(&("1".to_owned(), "1".to_owned())).await.unwrap(), None);
    assert_eq!(named.get(1).await.unwrap(), None);
    let pair = |left: &str, right: &str| by_two.key((left.to_owned(), right.to_owned()));
    let keys = [pair("a", "b:c"), pair("a:b", "c"), Key::of("item").with("ab:c")];
    assert_eq!(HashSet::from(keys).len(), 3);
    assert_eq!(pair("a", "1"), Key::of("item").with("a").with("1"));
}

#[tokio::test(start_paused = true)]
async fn in_one_process_a_value_of_another_type_is_a_miss() {
    let store = MemoryStore::new(10);
    asked(&cache(store.clone()), 1, &Loader::new()).await.0.unwrap();
    let other: Cache<u64, u64> = builder(store).build().expect("options");
    assert_eq!(other.get(1).await.unwrap(), None);
    let loaded = other.get_or_load(1, async || Ok::<_, Infallible>(7)).await;
    assert_eq!(loaded.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_forced_refresh_replaces_a_fresh_value() {
    let loader = Loader::new();
    let cache = cache(MemoryStore::new(10));
    asked(&cache, 1, &loader).await.0.unwrap();
    assert_eq!(asked(&cache.with_refresh(), 1, &loader).await.0.unwrap(), 2);
    assert_eq!(asked(&cache, 1, &loader).await.0.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_wait_and_not_the_load() {
    let loader = Loader::taking(MINUTE / 4);
    let cache = cache(MemoryStore::new(10));
    let hurried = cache.with_deadline(Instant::now() + SECOND);
    assert_eq!(kind_of(&asked(&hurried, 1, &loader).await.0), CacheErrorKind::DeadlineExceeded);
    advance(MINUTE / 4).await;
    idle().await;
    assert_eq!(cache.get(1).await.unwrap(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn values_are_stored_as_the_program_classifies_them() {
    let store = MemoryStore::new(10);
    let cache: Cache<bool, Option<u64>> = builder(store)
        .not_found_ttl(SECOND)
        .classify(|found: &Option<u64>| {
            found.map_or(Cacheability::NotFound, |_| Cacheability::Keep)
        })
        .build()
        .expect("options");
    for value in [None, Some(7)] {
        let key = value.is_some();
        let loaded = cache.get_or_load(key, async move || Ok::<_, Infallible>(value)).await;
        assert_eq!(loaded.unwrap(), value);
    }
    assert_eq!(cache.get(false).await.unwrap(), Some(None));
    advance(SECOND * 2).await;
    assert_eq!(cache.get(false).await.unwrap(), None);
    assert_eq!(cache.get(true).await.unwrap(), Some(Some(7)));
}

#[tokio::test(start_paused = true)]
async fn get_loads_nothing_and_gives_what_is_fresh() {
    let memory = MemoryStore::new(10);
    let store = remote(&memory);
    let cache = builder::<u64, usize>(store.clone())
        .stale_while_revalidate(MINUTE)
        .build()
        .expect("options");
    assert_eq!(cache.get(1).await.unwrap(), None);
    bellwether_testkit::caches::put(&memory, 1, "42", bellwether_testkit::caches::JSON).await;
    assert_eq!(cache.get(1).await.unwrap(), Some(42));
    assert_eq!((store.calls(Operation::Lookup), store.calls(Operation::Acquire)), (2, 0));
    advance(MINUTE).await;
    assert_eq!(cache.get(1).await.unwrap(), None);
    store.on_any().fail(UNREACHABLE);
    let error = cache.get(1).await.expect_err("the store is down");
    assert!(matches!(error.kind(), CacheErrorKind::Store(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_too_long_is_an_error_of_every_call() {
    let cache: Cache<String, usize> = builder(MemoryStore::new(10)).build().expect("options");
    let long = "x".repeat(Key::MAX_BYTES);
    let loaded = cache.get_or_load(&*long, async || Ok::<_, Infallible>(1)).await;
    assert_eq!(kind_of(&loaded), CacheErrorKind::KeyTooLong);
    for error in [cache.get(&*long).await.unwrap_err(), cache.put(&*long, 1).await.unwrap_err()] {
        assert_eq!(error.kind(), CacheErrorKind::KeyTooLong);
    }
}

/// What a program has in its state, without a parameter for any closure.
#[derive(Clone)]
struct Shop {
    items: Cache<u64, usize>,
}

#[tokio::test(start_paused = true)]
async fn a_cache_fits_a_field_and_its_future_any_task() {
    fn is_state<T: Clone + Send + Sync + 'static>(_: &T) {}
    let shop = Shop { items: cache(MemoryStore::new(10)) };
    is_state(&shop);
    // The closure owns the shop while the call is made from it.
    let items = shop.items.clone();
    let load = async move || Ok::<_, Infallible>(shop.items.key(1).byte_len());
    assert_eq!(tokio::spawn(items.get_or_load(1, load)).await.unwrap().unwrap(), key(1).byte_len());
    // The part may be of any kind, and is not kept.
    let part = Rc::new(7_u64);
    assert_eq!(items.get(*part).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_store_behind_an_arc_is_that_store() {
    let memory = MemoryStore::new(10);
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    asked(&cache(store), 1, &Loader::new()).await.0.unwrap();
    assert_eq!(cache(memory).get(1).await.unwrap(), Some(1));
}
