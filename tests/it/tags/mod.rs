//! After a tag was invalidated, no request that starts later is given an older value with that tag.
//!
//! The loader answers with the number of the load: load 1 began before the invalidation, and load 2
//! after it.

mod bounds;
mod expiry;
mod joining;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bellwether::service::ReadThroughLayerBuilder;
use bellwether::store::Store;
use bellwether::{Cache, CacheStatus, MemoryStore, Tag};
use bellwether_testkit::caches::{Cached, KeyOf, MINUTE, answer, answers, ask, burst, idle, layer};
use bellwether_testkit::loaders::Loader;
use tower::Layer;

use crate::support::store::{FaultyStore, Operation, local, remote};

/// The shelf of an item. There are ten items on each.
fn shelf(item: u64) -> Tag {
    Tag::of("shelf").with(item / 10)
}

fn tagging(store: impl Store) -> ReadThroughLayerBuilder<KeyOf> {
    layer(store).tags(|item: &u64| [shelf(*item), Tag::of("catalog")])
}

fn tagged(store: impl Store, loader: &Loader) -> Cached {
    tagging(store).build().unwrap().layer(loader.clone())
}

async fn invalidate(cached: &Cached, tag: &Tag) {
    cached.handle().invalidate_tag(tag).await.expect("it works");
}

#[tokio::test(start_paused = true)]
async fn entries_with_the_tag_are_not_given_any_more_and_others_stay() {
    let cached = tagged(MemoryStore::new(100), &Loader::new());
    for item in [1, 2, 11] {
        answer(&cached, item).await;
    }
    invalidate(&cached, &shelf(1)).await;
    assert_eq!(answer(&cached, 11).await, 3);
    assert_eq!([answer(&cached, 1).await, answer(&cached, 2).await], [4, 5]);
    invalidate(&cached, &Tag::of("catalog")).await;
    assert_eq!(answer(&cached, 11).await, 6);
}

#[tokio::test(start_paused = true)]
async fn what_another_process_kept_is_not_given_any_more() {
    let loader = Loader::new();
    let store = MemoryStore::new(10);
    let [one, other] = [(); 2].map(|()| tagged(remote(&store), &loader));
    answer(&one, 1).await;
    assert_eq!(answer(&one, 1).await, 1);
    invalidate(&other, &shelf(1)).await;
    assert_eq!(answer(&one, 1).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_began_before_it_is_not_kept() {
    let loader = Loader::gated();
    let store = MemoryStore::new(10);
    let cached = tagged(store.clone(), &loader);
    let asked = ask(&cached, 1);
    loader.has_begun(1).await;
    invalidate(&cached, &shelf(1)).await;
    loader.let_go(1);
    let (_, status) = asked.await.unwrap();
    assert_eq!(status, CacheStatus::Led { stored: false });
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_joins_a_load_from_before_it_is_given_a_later_one() {
    let loader = Loader::gated();
    let cached = tagged(MemoryStore::new(10), &loader);
    let before = ask(&cached, 1);
    loader.has_begun(1).await;
    invalidate(&cached, &shelf(1)).await;
    let after = burst(&cached, 1, 10);
    idle().await;
    loader.let_go(2);
    assert_eq!(answers(vec![before]).await, [1]);
    assert_eq!(answers(after).await, [2; 10]);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_a_load_of_another_process_from_before_it_is_given_a_later_one() {
    let loader = Loader::gated();
    let store = MemoryStore::new(10);
    let [one, other] = [(); 2].map(|()| tagged(remote(&store), &loader));
    let before = ask(&one, 1);
    loader.has_begun(1).await;
    invalidate(&one, &shelf(1)).await;
    let after = burst(&other, 1, 10);
    idle().await;
    loader.let_go(2);
    assert_eq!(answers(vec![before]).await, [1]);
    assert_eq!(answers(after).await, [2; 10]);
}

/// The load has ended; its commit is on the way to the store, and is overtaken.
#[tokio::test(start_paused = true)]
async fn a_commit_that_it_overtakes_stores_nothing() {
    let memory = MemoryStore::new(10);
    let loader = Loader::new();
    let store = local(&memory);
    let committing = store.on(Operation::Commit).nth(1).hold();
    let cached = tagged(store, &loader);
    let before = ask(&cached, 1);
    committing.reached().await;
    invalidate(&cached, &shelf(1)).await;
    let after = ask(&cached, 1);
    idle().await;
    committing.open();
    assert_eq!(answers(vec![before]).await, [1]);
    assert_eq!(answers(vec![after]).await, [2]);
    assert_eq!(answer(&cached, 1).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_from_before_it_is_not_for_callers_after_it() {
    let memory = MemoryStore::new(10);
    let loader = Loader::new();
    let store = remote(&memory);
    let cached = tagged(store.clone(), &loader);
    answer(&cached, 1).await;
    let looking = store.on(Operation::Lookup).nth(1).do_it_and_hold();
    let before = ask(&cached, 1);
    looking.reached().await;
    invalidate(&cached, &shelf(1)).await;
    let after = ask(&cached, 1);
    idle().await;
    looking.open();
    assert_eq!(answers(vec![before]).await, [1]);
    assert_eq!(answers(vec![after]).await, [2]);
}

#[tokio::test(start_paused = true)]
async fn tags_of_the_answer_count_as_well() {
    let loader = Loader::new();
    let cached = layer(remote(&MemoryStore::new(10)))
        .answer_tags(|load: &usize| [Tag::of("load").with(*load)])
        .build()
        .unwrap()
        .layer(loader.clone());
    answer(&cached, 1).await;
    let handle = cached.handle();
    handle.invalidate_tag(&Tag::of("load").with(2)).await.expect("it works");
    assert_eq!(answer(&cached, 1).await, 1);
    handle.invalidate_tag(&Tag::of("load").with(1)).await.expect("it works");
    assert_eq!(answer(&cached, 1).await, 2);
    assert_eq!(answer(&cached, 1).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_learns_of_a_tag_after_its_invalidation_is_not_kept() {
    let loader = Loader::gated();
    let store = MemoryStore::new(10);
    let cached = layer(store.clone())
        .answer_tags(|load: &usize| [Tag::of("load").with(*load)])
        .build()
        .unwrap()
        .layer(loader.clone());
    let before = ask(&cached, 1);
    loader.has_begun(1).await;
    cached.handle().invalidate_tag(&Tag::of("load").with(1)).await.expect("it works");
    let after = ask(&cached, 1);
    idle().await;
    loader.let_go(2);
    assert_eq!(answers(vec![before]).await, [1]);
    assert_eq!(answers(vec![after]).await, [2]);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_in_the_background_that_it_overtakes_is_not_kept() {
    let loader = Loader::gated();
    let store = MemoryStore::new(10);
    let cached =
        tagging(store).stale_while_revalidate(MINUTE).build().unwrap().layer(loader.clone());
    loader.let_go(1);
    answer(&cached, 1).await;
    cached.handle().expire(&bellwether_testkit::caches::key(1)).await.expect("it works");
    assert_eq!(answer(&cached, 1).await, 1, "the stale one");
    loader.has_begun(2).await;
    invalidate(&cached, &shelf(1)).await;
    let after = ask(&cached, 1);
    idle().await;
    loader.let_go(2);
    assert_eq!(answers(vec![after]).await, [3]);
}

#[tokio::test(start_paused = true)]
async fn all_requests_of_a_batch_have_their_tags() {
    let store = FaultyStore::new(MemoryStore::new(100));
    let cache = Cache::<u64, u64>::builder("item", store).ttl(MINUTE).build().unwrap();
    let loads = Arc::new(AtomicUsize::new(0));
    let load = async || {
        for first in [0, 10] {
            let counter = loads.clone();
            let load = async move |items: Vec<u64>| {
                counter.fetch_add(items.len(), Ordering::SeqCst);
                Ok::<_, io::Error>(items.into_iter().map(Ok).collect::<Vec<_>>())
            };
            let shelf = cache.tagged([shelf(first)]);
            for answer in shelf.get_or_load_many(first..first + 10, load).await {
                answer.expect("an answer");
            }
        }
        loads.load(Ordering::SeqCst)
    };
    assert_eq!([load().await, load().await], [20, 20]);
    cache.handle().invalidate_tag(&shelf(1)).await.expect("it works");
    assert_eq!(load().await, 30);
}
