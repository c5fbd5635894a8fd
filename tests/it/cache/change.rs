//! `change`: a write and its invalidation, in this order and to the end of both.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bellwether::{CacheErrorKind, Changed, Error, MemoryStore, Tag};
use bellwether_testkit::caches::idle;
use bellwether_testkit::loaders::Loader;
use futures_util::FutureExt;
use tokio::sync::Notify;

use super::{asked, cache};
use crate::support::store::{Operation, UNREACHABLE, local};

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
        Changed::Pending("written", error) => assert!(!error.is_kept(), "this store keeps nothing"),
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
    let changed = cache.handle().change_tag(&tag, written()).await.unwrap();
    assert_eq!(changed.into_inner(), "written");
    assert_eq!((cache.get(1).await.unwrap(), cache.get(2).await.unwrap()), (None, None));
}
