//! A load inside another load waits for no permit.

use std::convert::Infallible;

use bellwether::{Cache, Loads};
use bellwether_testkit::caches::{NEVER, SECOND, idle};
use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::{descend, patient, stores};

/// Each of 200 keys is loaded by a load that reads another key.
#[tokio::test(start_paused = true)]
async fn loads_that_read_other_keys_do_not_wait_for_each_other() {
    for store in stores() {
        let cache = patient("nested", &store).max_loads(1).build().unwrap();
        let asked = (1..=200_u64).map(|key| {
            let inner = cache.clone();
            tokio::spawn(cache.get_or_load(key, async move || {
                let own = async || Ok::<_, Infallible>(1);
                // Half of them read a key for which another caller queues.
                let other = if key % 2 == 0 { key - 1 } else { 1_000 + key };
                Ok::<_, Infallible>(inner.get_or_load(other, own).await.expect("an answer"))
            }))
        });
        let ended = timeout(NEVER, join_all(asked)).await.expect("no caller is stuck");
        assert!(ended.into_iter().all(|it| it.unwrap().is_ok()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_recursion_ends_however_deep_it_is() {
    for store in stores() {
        let cache = patient("deep", &store).max_loads(1).build().unwrap();
        let deepest = timeout(NEVER, descend(cache, 200)).await.expect("it is not stuck");
        assert_eq!(deepest.unwrap(), 200);
    }
}

/// The loads of each read a key of the other.
#[tokio::test(start_paused = true)]
async fn caches_that_share_a_bound_can_read_each_other() {
    for store in stores() {
        let database = Loads::at_most(1);
        let caches = ["left", "right"]
            .map(|name| patient(name, &store).max_loads(&database).build().unwrap());
        let asked = (0..20_u64).map(|key| {
            let [from, to] = [&caches[key as usize % 2], &caches[1 - key as usize % 2]];
            let to = to.clone();
            tokio::spawn(from.get_or_load(key, async move || {
                let own = async || Ok::<_, Infallible>(1);
                Ok::<_, Infallible>(to.get_or_load(key, own).await.expect("an answer"))
            }))
        });
        let ended = timeout(NEVER, join_all(asked)).await.expect("no caller is stuck");
        assert!(ended.into_iter().all(|it| it.unwrap().is_ok()));
    }
}

/// It may be made in a load, and run in another task.
#[tokio::test(start_paused = true)]
async fn a_call_that_a_loader_hands_to_a_task_passes() {
    for store in stores() {
        let cache = patient("spawned", &store).max_loads(1).build().unwrap();
        let inner = cache.clone();
        let outer = cache.get_or_load(1, async move || {
            let call = inner.get_or_load(2, async || Ok::<_, Infallible>(7));
            Ok::<_, Infallible>(tokio::spawn(call).await.unwrap().expect("an answer"))
        });
        assert_eq!(timeout(NEVER, outer).await.expect("it is not stuck").unwrap(), 7);
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_inside_a_load_passes_and_so_does_a_load_inside_a_batch() {
    for store in stores() {
        let cache = patient("mixed", &store).max_loads(1).build().unwrap();
        let inner = cache.clone();
        let many = cache.get_or_load_many([1, 2], async move |keys: Vec<u64>| {
            let each = async |keys: Vec<u64>| {
                Ok::<_, Infallible>(keys.into_iter().map(Ok).collect::<Vec<_>>())
            };
            let below = inner.get_or_load_many([11, 12], each).await;
            assert!(below.into_iter().all(|it| it.is_ok()));
            let one = inner.get_or_load(21, async || Ok::<_, Infallible>(5)).await;
            let one: u64 = one.expect("an answer");
            Ok::<Vec<Result<u64, Infallible>>, _>(keys.into_iter().map(|_| Ok(one)).collect())
        });
        let ended = timeout(NEVER, many).await.expect("it is not stuck");
        assert!(ended.into_iter().all(|it| it.unwrap() == 5));
    }
}

/// The key of a load that passes is in no queue, so its callers wait for its load only.
#[tokio::test(start_paused = true)]
async fn a_load_that_passes_takes_nothing_from_the_queue() {
    let [store, _] = stores();
    let cache: Cache<u64, u64> = patient("apart", &store).max_loads(1).build().unwrap();
    let (end, ends) = oneshot::channel::<()>();
    let inner = cache.clone();
    let outer = tokio::spawn(cache.get_or_load(1, async move || {
        let slow = async || {
            sleep(SECOND * 5).await;
            Ok::<_, Infallible>(2)
        };
        let nested = inner.get_or_load(2, slow).await.expect("an answer");
        ends.await.unwrap();
        Ok::<_, Infallible>(nested)
    }));
    idle().await;
    let queued = tokio::spawn(cache.get_or_load(3, async || Ok::<_, Infallible>(3)));
    sleep(SECOND).await;
    assert_eq!(cache.stats().current.queued_loads, 1);
    sleep(SECOND * 10).await;
    assert_eq!(cache.stats().current.queued_loads, 1, "the outer load has its permit");
    end.send(()).unwrap();
    assert_eq!((outer.await.unwrap().unwrap(), queued.await.unwrap().unwrap()), (2, 3));
}
