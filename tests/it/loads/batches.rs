//! One call of a batch loader counts as one load.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bellwether::Cache;
use bellwether_testkit::caches::{NEVER, SECOND, idle};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::stores;

/// A batch loader that takes a second, and notes how many keys each call gets.
#[derive(Clone, Default)]
struct Calls {
    keys: Arc<Mutex<Vec<usize>>>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Calls {
    async fn load(self, keys: Vec<u64>) -> Result<BTreeMap<u64, u64>, Infallible> {
        self.keys.lock().unwrap().push(keys.len());
        self.most.fetch_max(self.running.fetch_add(1, SeqCst) + 1, SeqCst);
        sleep(SECOND).await;
        self.running.fetch_sub(1, SeqCst);
        Ok(keys.into_iter().map(|key| (key, key)).collect())
    }

    fn sizes(&self) -> Vec<usize> {
        self.keys.lock().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_counts_as_one_load() {
    for store in stores() {
        let calls = Calls::default();
        let cache: Cache<u64, Option<u64>> =
            Cache::builder("batch", store).ttl(SECOND * 60).max_loads(2).build().unwrap();
        let asked = (0..6_u64).map(|batch| {
            let calls = calls.clone();
            let keys = (0..100).map(|key| 1_000 * batch + key);
            tokio::spawn(cache.get_or_load_many(keys, move |keys| calls.load(keys)))
        });
        let began = Instant::now();
        let ended = timeout(NEVER, join_all(asked)).await.expect("no batch is stuck");
        assert!(ended.into_iter().flat_map(Result::unwrap).all(|it| it.unwrap().is_some()));
        assert_eq!((calls.sizes(), calls.most.load(SeqCst)), (vec![100; 6], 2));
        assert_eq!(began.elapsed(), SECOND * 3);
        idle().await;
        assert_eq!(cache.stats().current.queued_loads, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn each_call_of_a_large_batch_counts() {
    for store in stores() {
        let calls = Calls::default();
        let load = calls.clone();
        let cache: Cache<u64, Option<u64>> =
            Cache::builder("large", store).ttl(SECOND * 60).max_loads(2).build().unwrap();
        let began = Instant::now();
        let many = cache.get_or_load_many(0..5_000, move |keys| load.load(keys));
        let ended = timeout(NEVER, many).await.expect("it is not stuck");
        assert!(ended.into_iter().all(|it| it.unwrap().is_some()));
        assert_eq!((calls.sizes(), calls.most.load(SeqCst)), (vec![1_000; 5], 2));
        assert_eq!(began.elapsed(), SECOND * 3);
    }
}

/// A batch waits for no permit that it holds.
#[tokio::test(start_paused = true)]
async fn a_batch_and_single_loads_take_turns() {
    // Without a store, key 0 is loaded again.
    for (store, keys) in stores().into_iter().zip([299, 300]) {
        let calls = Calls::default();
        let load = calls.clone();
        let cache: Cache<u64, Option<u64>> =
            Cache::builder("turns", store).ttl(SECOND * 60).max_loads(1).build().unwrap();
        let one = async || {
            sleep(SECOND).await;
            Ok::<_, Infallible>(Some(7))
        };
        let first = tokio::spawn(cache.get_or_load(0, one));
        idle().await;
        let many = tokio::spawn(cache.get_or_load_many(0..300, move |keys| load.load(keys)));
        idle().await;
        let last = tokio::spawn(cache.get_or_load(1_000, one));
        let ended = timeout(NEVER, many).await.expect("it is not stuck").unwrap();
        assert_eq!(ended.into_iter().flat_map(Result::unwrap).count(), 300);
        assert!(first.await.unwrap().is_ok() && last.await.unwrap().is_ok());
        assert_eq!(calls.sizes(), [keys]);
    }
}
