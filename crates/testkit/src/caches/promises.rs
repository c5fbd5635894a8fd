//! Promises to a fleet as checks for any store: a server keeps them in another way than a
//! `MemoryStore`.

use std::sync::Arc;
use std::time::Duration;

use bellwether::store::Store;
use bellwether::{Cache, CacheStatus, Error, ErrorClass, Lifetimes, StaleReason, Tag};
use bellwether_test::StoreExt as _;
use bellwether_test::faulty::{FaultyStore, Operation};
use futures_util::future::{join, join_all};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt};

use super::{
    Cached, JSON, MINUTE, SECOND, answer, ask, burst, cached, key, layer, lease, put, put_for,
    remembering_layer, settled, unprobed,
};
use crate::loaders::{End, Loader, Refusal};

/// The stores of some processes, which share their entries.
pub type Fleet = Vec<Arc<dyn Store>>;

/// What ends a cooldown.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Invalidate,
    Expire,
    Put,
}

/// Checks that an invalidation, an expiry and a new value end a cooldown in all processes within
/// this time. It has to be less than a second, after which flights ask again in any case. On a slow
/// machine that may come first, so each is tried a few times.
pub async fn a_cooldown_ends_in_the_fleet(stores: &[Arc<dyn Store>], within: Duration) {
    for (ending, first) in [Ending::Invalidate, Ending::Expire, Ending::Put].into_iter().zip(0..) {
        let mut items = (0..TRIES).map(|item| first * TRIES + item);
        while !ends(stores, items.next().expect("it ends within the time"), ending, within).await {}
    }
}

async fn ends(stores: &[Arc<dyn Store>], item: u64, ending: Ending, within: Duration) -> bool {
    let loader = Loader::new();
    loader.ends_by(End::Fail);
    let fleet: Vec<_> = stores.iter().map(|store| process(store, &loader)).collect();
    let began = Instant::now();
    for process in [&fleet[0]].into_iter().chain(&fleet) {
        let ended = settled(burst(process, item, 10)).await;
        assert!(ended.iter().all(|(answer, _)| answer.is_err()), "{ended:?}");
    }
    let are_cooling_down = fleet.iter().all(|process| process.in_flight() == 1);
    loader.ends_by(End::Answer);
    let handle = fleet[0].handle();
    match ending {
        Ending::Invalidate => {
            handle.invalidate(&key(item)).await.expect("an answer");
        }
        Ending::Expire => {
            handle.expire(&key(item)).await.expect("an answer");
        }
        Ending::Put => put(&stores[0], item, "3", JSON).await,
    }
    while fleet.iter().any(|process| process.in_flight() > 0) {
        sleep(Duration::from_millis(1)).await;
    }
    let took = began.elapsed();
    for process in &fleet {
        assert_eq!(answer(process, item).await, 3, "{ending:?}");
    }
    are_cooling_down && took < within
}

fn process(store: &Arc<dyn Store>, loader: &Loader) -> Cached {
    let layer = unprobed(remembering_layer(Arc::clone(store)));
    layer.failure_windows(MINUTE, MINUTE).build().expect("options").layer(loader.clone())
}

/// Checks that a stale answer delays no caller, and that one load in the fleet replaces it.
pub async fn a_stale_answer_is_replaced_by_one_load(stores: &[Arc<dyn Store>]) {
    let lifetimes = Lifetimes::fresh_for(MINUTE).stale_while_revalidate(MINUTE);
    put_for(&stores[0], 1, "42", JSON, lifetimes).await;
    stores[0].expire(key(1)).await.expect("an answer");
    let loader = Loader::gated();
    let process = |store| {
        layer(store).stale_while_revalidate(MINUTE).build().expect("options").layer(loader.clone())
    };
    let fleet: Vec<_> = stores.iter().cloned().map(process).collect();
    let is_stale = |status: &CacheStatus| {
        matches!(status, CacheStatus::Stale { why: StaleReason::Revalidating, .. })
    };
    is_replaced(&fleet, &loader, 42, is_stale).await;
}

/// Checks the same of an answer that is refreshed early.
pub async fn an_early_refresh_is_one_load(stores: &[Arc<dyn Store>]) {
    let loader = Loader::gated();
    let process = |store| {
        let early = layer(store).ttl(SECOND * 10).refresh_early(100.0).build();
        early.expect("options").layer(loader.clone())
    };
    let fleet: Vec<_> = stores.iter().cloned().map(process).collect();
    let first = ask(&fleet[0], 1);
    loader.has_begun(1).await;
    // A refresh is due the earlier, the longer the load took.
    sleep(SECOND / 2).await;
    loader.let_go(1);
    assert_eq!(first.await.expect("no panic").0.expect("an answer"), 1);
    is_replaced(&fleet, &loader, 1, |status| matches!(status, CacheStatus::Hit { .. })).await;
}

async fn is_replaced(
    fleet: &[Cached],
    loader: &Loader,
    old: usize,
    is_right: impl Fn(&CacheStatus) -> bool,
) {
    let loads = loader.loads() + 1;
    // The load is held, so a caller that waits for it is stuck.
    for _ in 0..2 {
        let asked = fleet.iter().flat_map(|process| burst(process, 1, 100)).collect();
        for (answer, status) in settled(asked).await {
            assert_eq!(answer.expect("an answer"), old);
            assert!(is_right(&status), "{status:?}");
        }
        loader.has_begun(loads).await;
    }
    assert_eq!(loader.loads(), loads);
    loader.let_go(1);
    for process in fleet {
        while answer(process, 1).await == old {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Checks that "not found" answers all callers of the fleet, from one load.
pub async fn not_found_is_shared(stores: &[Arc<dyn Store>]) {
    let loader = Loader::gated();
    loader.ends_by(End::Fail);
    let process = |store| {
        let cache = Cache::<u64, usize>::builder("item", store).ttl(MINUTE).not_found_ttl(MINUTE);
        cache.classify_error(|_: &Refusal| ErrorClass::NotFound).build().expect("options")
    };
    let fleet: Vec<_> = stores.iter().cloned().map(process).collect();
    let all_ask = || {
        let of_each = |cache: &Cache<u64, usize>| {
            let (cache, loader) = (cache.clone(), loader.clone());
            async move { cache.get_or_load(1, async move || loader.oneshot(1).await).await }
        };
        join_all(fleet.iter().flat_map(move |cache| [(); 10].map(|()| of_each(cache))))
    };
    let (first, ()) = join(all_ask(), async {
        loader.has_begun(1).await;
        loader.let_go(1);
    })
    .await;
    for answer in first.into_iter().chain(all_ask().await) {
        assert!(answer.as_ref().is_err_and(Error::is_not_found), "{answer:?}");
    }
    assert_eq!(loader.loads(), 1);
}

/// Checks that callers that wait for a load of another process get an answer from after a put.
/// Returns whether the put was stored: a waiter may begin a load first.
pub async fn waiters_get_what_was_put(stores: &[Arc<dyn Store>]) -> bool {
    let elsewhere = lease(&stores[0], 1, MINUTE).await;
    let process = cached(Arc::clone(&stores[1]), &Loader::new());
    let waiting = ask(&process, 1);
    while process.in_flight() == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    let cache = Cache::<u64, usize>::builder("item", Arc::clone(&stores[0]))
        .ttl(MINUTE)
        .build()
        .expect("options");
    let is_stored = cache.put(1, 42).await.expect("an answer");
    let (answer, _) = settled(vec![waiting]).await.remove(0);
    assert!([1, 42].contains(&answer.expect("an answer")), "an answer from after the put");
    drop(elsewhere);
    is_stored
}

/// Checks that the invalidation of a tag outdates a value that is being put under it: the lease is taken, and
/// the value not stored yet. Then the store forgets the tag, if it can.
pub async fn an_invalidated_tag_outdates_a_put(store: Arc<dyn Store>, forget: impl FnOnce(&Tag)) {
    let faulty = FaultyStore::new(Arc::clone(&store));
    let committing = faulty.on(Operation::Commit).nth(1).hold();
    let shelf = Tag::of("shelf").with(7);
    let cache = |store: Arc<dyn Store>| {
        let cache = Cache::<u64, usize>::builder("item", store).ttl(MINUTE).build();
        cache.expect("options").tagged([shelf.clone()])
    };
    let (writer, other) = (cache(Arc::new(faulty)), cache(store));
    let put = tokio::spawn(async move { writer.put(1, 42).await });
    committing.reached().await;
    other.handle().invalidate_tag(&shelf).await.expect("an answer");
    forget(&shelf);
    committing.open();
    put.await.expect("no panic").expect("an answer");
    assert_eq!(other.get(1).await.expect("an answer"), None);
}

/// How often each is tried.
const TRIES: u64 = 10;
