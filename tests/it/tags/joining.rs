//! Callers of one key with other tags than the flight that they join.

use std::convert::Infallible;

use bellwether::store::Store;
use bellwether::{Cache, MemoryStore, ReadThroughLayer, Tag};
use bellwether_testkit::caches::{Cached, KeyOf, MINUTE, answers, ask, burst, idle, key};
use bellwether_testkit::loaders::Loader;
use tower::Layer;

use crate::support::store::{local, remote};

/// A request for an item that names its tag.
const TAGGED: u64 = 100;

/// Only some requests for an item name its tag.
fn mixed(store: impl Store, loader: &Loader) -> Cached {
    let key_of: KeyOf = |item| key(item % TAGGED);
    let layer = ReadThroughLayer::builder(store, key_of).ttl(MINUTE).jitter(0.0);
    layer.tags(|item: &u64| (*item >= TAGGED).then(tag)).build().unwrap().layer(loader.clone())
}

fn tag() -> Tag {
    Tag::of("shelf")
}

async fn invalidate(cached: &Cached) {
    cached.handle().invalidate_tag(&tag()).await.expect("it works");
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_a_tag_does_not_take_the_answer_of_a_load_without_it() {
    for place in [local, remote] {
        let loader = Loader::gated();
        let cached = mixed(place(&MemoryStore::new(10)), &loader);
        let plain = ask(&cached, 1);
        loader.has_begun(1).await;
        invalidate(&cached).await;
        let tagged = burst(&cached, 1 + TAGGED, 10);
        idle().await;
        loader.let_go(1);
        assert_eq!(answers(vec![plain]).await, [1]);
        loader.has_begun(2).await;
        loader.let_go(1);
        assert_eq!(answers(tagged).await, [2; 10]);
        assert_eq!(answers(burst(&cached, 1, 10)).await, [2; 10]);
        assert_eq!(loader.loads(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn nor_does_it_in_another_process() {
    let (loader, memory) = (Loader::gated(), MemoryStore::new(10));
    let [one, other] = [(); 2].map(|()| mixed(remote(&memory), &loader));
    let plain = ask(&one, 1);
    loader.has_begun(1).await;
    let waits = ask(&other, 1);
    idle().await;
    invalidate(&other).await;
    let tagged = burst(&other, 1 + TAGGED, 10);
    idle().await;
    loader.let_go(1);
    assert_eq!(answers(vec![plain, waits]).await, [1, 1]);
    loader.has_begun(2).await;
    loader.let_go(1);
    assert_eq!(answers(tagged).await, [2; 10]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_the_tag_takes_the_answer_of_a_load_with_it() {
    let loader = Loader::gated();
    let cached = mixed(MemoryStore::new(10), &loader);
    let tagged = ask(&cached, 1 + TAGGED);
    loader.has_begun(1).await;
    let plain = ask(&cached, 1);
    idle().await;
    loader.let_go(1);
    assert_eq!(answers(vec![tagged, plain]).await, [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_tag_takes_no_entry_without_it() {
    for place in [local, remote] {
        let store = place(&MemoryStore::new(10));
        let plain = Cache::<u64, u64>::builder("item", store).ttl(MINUTE).build().expect("options");
        let tagged = plain.tagged([tag()]);
        let load = |value: u64| async move || Ok::<_, Infallible>(value);
        assert_eq!(plain.get_or_load(1, load(1)).await.expect("a value"), 1);
        plain.handle().invalidate_tag(&tag()).await.expect("it works");
        assert_eq!(tagged.get(1).await.expect("it works"), None);
        assert_eq!(tagged.get_or_load(1, load(2)).await.expect("a value"), 2);
        assert_eq!(tagged.get(1).await.expect("it works"), Some(2));
        assert_eq!(plain.get(1).await.expect("it works"), Some(2));
    }
}
