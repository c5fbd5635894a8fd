//! `change`: a write and its invalidation, in this order and to the end of both.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bellwether::change::Invalidation;
use bellwether::{Cache, CacheErrorKind, Changed, Error, MemoryStore, Tag};
use bellwether_testkit::caches::{MINUTE, NO_TIME, idle};
use bellwether_testkit::loaders::Loader;
use futures_util::FutureExt;
use tokio::sync::Notify;

use super::{asked, builder, cache};
use crate::support::store::{Faulty, Operation, UNREACHABLE, local};

async fn written() -> io::Result<&'static str> {
    Ok("written")
}

#[tokio::test(start_paused = true)]
async fn a_change_writes_and_then_invalidates() {
    let cache = cache(MemoryStore::new(10));
    asked(&cache, 1, &Loader::new()).await.0.unwrap();
    let seen = cache.clone();
    let write = async move { seen.get(1).await };
    let changed = cache.change(1, write).await.unwrap();
    assert!(matches!(changed, Changed::Invalidated(Some(1))), "{changed:?}");
    assert_eq!(cache.get(1).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_change_goes_on_without_its_caller() {
    let cache = cache(MemoryStore::new(10));
    asked(&cache, 1, &Loader::new()).await.0.unwrap();
    let (goes_on, commits) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (waits, told) = (Arc::clone(&goes_on), Arc::clone(&commits));
    let write = async move {
        waits.notified().await;
        told.notify_one();
        written().await
    };
    assert!(cache.change(1, write).now_or_never().is_none());
    goes_on.notify_one();
    commits.notified().await;
    idle().await;
    assert_eq!(cache.get(1).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_change_says_that_its_invalidation_is_pending() {
    let store = local(&MemoryStore::new(10));
    let cache = cache(store.clone());
    store.on(Operation::Invalidate).fail(UNREACHABLE);
    match cache.change(1, written()).await.unwrap() {
        Changed::Pending("written", error) => {
            assert!(!error.is_pending(), "this store keeps nothing")
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_or_panics_is_followed_by_an_invalidation() {
    let cache = cache(MemoryStore::new(10));
    let loader = Loader::new();
    asked(&cache, 1, &loader).await.0.unwrap();
    let failed = cache.change(1, async { Err::<(), _>("perhaps written") }).await;
    assert_eq!(failed.unwrap_err(), "perhaps written");
    assert_eq!(cache.get(1).await.unwrap(), None);
    asked(&cache, 1, &loader).await.0.unwrap();
    let panics = cache.change(1, async { panic!("as planned") as io::Result<()> });
    AssertUnwindSafe(panics).catch_unwind().await.expect_err("the panic of the write");
    assert_eq!(cache.get(1).await.unwrap(), None);
}

/// An item, the lists that have it, and what only the write knows.
struct Shop {
    store: Faulty,
    items: Cache<u64, usize>,
    lists: Cache<String, usize>,
}

impl Shop {
    async fn filled() -> Self {
        let store = local(&MemoryStore::new(10));
        let lists = Cache::builder("list", store.clone()).ttl(MINUTE).build().expect("options");
        let shop = Self { items: cache(store.clone()), lists, store };
        shop.items.put(1, 1).await.expect("it is stored");
        for list in ["shelf", "search", "other"] {
            let lists = shop.lists.tagged([Tag::of("list").with(list)]);
            lists.put(list, 1).await.expect("it is stored");
        }
        shop
    }

    fn known(&self) -> Invalidation {
        Invalidation::new().key(&self.items, 1).tag(&self.lists, Tag::of("list").with("search"))
    }

    /// What is still there.
    async fn left(&self) -> Vec<&'static str> {
        let mut left = Vec::new();
        left.extend(self.items.get(1).await.unwrap().map(|_| "item"));
        for list in ["shelf", "search", "other"] {
            left.extend(self.lists.get(list).await.unwrap().map(|_| list));
        }
        left
    }
}

#[tokio::test(start_paused = true)]
async fn one_call_invalidates_keys_and_tags_of_several_caches_and_what_the_write_tells() {
    let shop = Shop::filled().await;
    let lists = shop.lists.clone();
    let write = async { Ok::<_, io::Error>("shelf") };
    let more = move |list: &&str| Invalidation::new().key(&lists, *list);
    let changed = shop.known().change_with(write, more).await.unwrap();
    assert!(matches!(changed, Changed::Invalidated("shelf")), "{changed:?}");
    assert_eq!(shop.left().await, ["other"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_several_goes_on_without_its_caller() {
    let shop = Shop::filled().await;
    let (goes_on, written) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (waits, tells, lists) = (Arc::clone(&goes_on), Arc::clone(&written), shop.lists.clone());
    let write = async move {
        waits.notified().await;
        tells.notify_one();
        Ok::<_, io::Error>("shelf")
    };
    let more = move |list: &&str| Invalidation::new().key(&lists, *list);
    assert!(shop.known().change_with(write, more).now_or_never().is_none());
    goes_on.notify_one();
    written.notified().await;
    idle().await;
    assert_eq!(shop.left().await, ["other"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_known_is_invalidated_though_the_write_fails_or_its_result_panics() {
    let shop = Shop::filled().await;
    let failed = shop.known().change(async { Err::<(), _>("perhaps written") }).await;
    assert_eq!(failed.unwrap_err(), "perhaps written");
    assert_eq!(shop.left().await, ["shelf", "other"]);
    let shop = Shop::filled().await;
    let panics = shop.known().change_with(written(), |_| panic!("as planned"));
    AssertUnwindSafe(panics).catch_unwind().await.expect_err("the panic of the closure");
    assert_eq!(shop.left().await, ["shelf", "other"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_several_is_pending_if_one_of_them_fails_and_the_others_are_done() {
    let shop = Shop::filled().await;
    shop.store.on(Operation::InvalidateTag).fail(UNREACHABLE);
    match shop.known().change(written()).await.unwrap() {
        Changed::Pending("written", error) => {
            assert!(error.to_string().contains("list"), "{error}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(shop.left().await, ["shelf", "search", "other"]);
    shop.store.heal();
    shop.known().run().await.expect("the store answers");
    assert_eq!(shop.left().await, ["shelf", "other"]);
}

#[tokio::test(start_paused = true)]
async fn a_cache_has_the_calls_for_tags() {
    let shop = Shop::filled().await;
    shop.items.invalidate_tag(&Tag::of("list").with("search")).await.unwrap();
    shop.lists.expire_tag(&Tag::of("list").with("shelf"), NO_TIME).await.unwrap();
    assert_eq!(shop.left().await, ["item", "other"]);
    let error = shop.lists.clear().await.unwrap_err();
    assert_eq!(error.kind(), CacheErrorKind::NotClearable);
    let clearable = builder::<u64, usize>(shop.store.clone()).clearable().build().unwrap();
    clearable.put(2, 2).await.unwrap();
    clearable.clear().await.unwrap();
    assert_eq!((clearable.get(2).await.unwrap(), shop.left().await), (None, vec!["item", "other"]));
}

#[tokio::test(start_paused = true)]
async fn calls_with_too_many_tags_fail_and_load_nothing() {
    let (cache, loader) = (cache(MemoryStore::new(10)), Loader::new());
    let tagged = cache.tagged((0..33_u64).map(|number| Tag::of("shelf").with(number)));
    let loaded = asked(&tagged, 1, &loader).await.0;
    assert!(matches!(loaded, Err(Error::Cache(error)) if error.kind() == TOO_MANY_TAGS));
    assert_eq!(tagged.get(1).await.unwrap_err().kind(), TOO_MANY_TAGS);
    assert_eq!(tagged.put(1, 7).await.unwrap_err().kind(), TOO_MANY_TAGS);
    assert_eq!((loader.loads(), cache.get(1).await.unwrap()), (0, None));
}

const TOO_MANY_TAGS: CacheErrorKind = CacheErrorKind::TooManyTags;

#[tokio::test(start_paused = true)]
async fn a_change_of_a_tag_removes_all_its_entries() {
    let cache = cache(MemoryStore::new(10));
    let tag = Tag::of("shelf").with(7);
    let tagged = cache.tagged([tag.clone()]);
    for item in [1, 2] {
        asked(&tagged, item, &Loader::new()).await.0.unwrap();
    }
    let changed = cache.change_tag(&tag, written()).await.unwrap();
    assert_eq!(changed.into_inner(), "written");
    assert_eq!((cache.get(1).await.unwrap(), cache.get(2).await.unwrap()), (None, None));
}
