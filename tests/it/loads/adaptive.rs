//! A bound that follows the times of loads fills the source, and no more.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bellwether::{Cache, Loads, MemoryStore, Wait};
use bellwether_testkit::caches::{MINUTE, SECOND, idle};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

/// A source that answers so many queries at once, each after a while. Further ones wait in it.
struct Source {
    workers: Semaphore,
    millis: AtomicU64,
    /// Those in it now, and the most at once since the last look.
    inside: [AtomicUsize; 2],
    answered: AtomicU64,
}

const HALF_A_MINUTE: Duration = Duration::from_secs(30);

/// What came of some time.
#[derive(Debug)]
struct Seen {
    per_second: f64,
    most_inside: usize,
}

impl Source {
    fn new(workers: usize, millis: u64) -> Arc<Self> {
        let workers = Semaphore::new(workers);
        let millis = millis.into();
        Arc::new(Self { workers, millis, inside: Default::default(), answered: 0.into() })
    }

    async fn query(&self) -> Result<u64, Infallible> {
        let [inside, most] = &self.inside;
        most.fetch_max(inside.fetch_add(1, Relaxed) + 1, Relaxed);
        let _worker = self.workers.acquire().await.expect("it is never closed");
        // Half as long, or half as long again: keys differ.
        let millis = self.millis.load(Relaxed) as f64;
        let spread = (self.answered.fetch_add(7_919, Relaxed) % 1_000) as f64 / 1_000.0;
        sleep(Duration::from_secs_f64(millis * (0.5 + spread) / 1_000.0)).await;
        inside.fetch_sub(1, Relaxed);
        Ok(1)
    }

    /// Lets time pass, and looks at the last part of it.
    async fn seen(&self, settling: Duration, looking: Duration) -> Seen {
        sleep(settling).await;
        let (before, began) = (self.answered.load(Relaxed), Instant::now());
        self.inside[1].store(0, Relaxed);
        sleep(looking).await;
        let answered = (self.answered.load(Relaxed) - before) / 7_919;
        let per_second = answered as f64 / began.elapsed().as_secs_f64();
        Seen { per_second, most_inside: self.inside[1].load(Relaxed) }
    }
}

/// Callers that always ask for new keys: 200 at once.
fn crowd(source: &Arc<Source>) {
    let items = Cache::builder("item", MemoryStore::new(10)).ttl(MINUTE);
    let items = items.wait(Wait::at_most(MINUTE * 60)).load_timeout(MINUTE);
    let items = items.max_loads(Loads::adaptive(150)).build().unwrap();
    for caller in 0..200_u64 {
        let (items, source): (Cache<u64, u64>, _) = (items.clone(), Arc::clone(source));
        tokio::spawn(async move {
            for key in 0.. {
                let source = Arc::clone(&source);
                let load = async move || source.query().await;
                items.get_or_load(caller << 32 | key, load).await.expect("an answer");
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn it_fills_a_source_of_unknown_capacity_and_no_more() {
    for workers in [1, 5, 50] {
        let source = Source::new(workers, 100);
        crowd(&source);
        let seen = source.seen(HALF_A_MINUTE, HALF_A_MINUTE).await;
        let capacity = workers as f64 * 10.0;
        assert!(seen.per_second > capacity * 0.9, "{workers}: {seen:?}");
        let most = workers as f64 + 3.0 * (workers as f64).sqrt() + 2.0;
        assert!((seen.most_inside as f64) <= most, "{workers}: {seen:?}");
    }
}

/// Each query takes ten times as long.
#[tokio::test(start_paused = true)]
async fn it_follows_a_source_that_becomes_slow_and_recovers() {
    let source = Source::new(20, 100);
    crowd(&source);
    sleep(SECOND * 10).await;
    for (millis, capacity) in [(1_000, 20.0), (100, 200.0)] {
        source.millis.store(millis, Relaxed);
        let seen = source.seen(HALF_A_MINUTE, HALF_A_MINUTE).await;
        assert!(seen.per_second > capacity * 0.9, "{millis}: {seen:?}");
        assert!(seen.most_inside <= 36, "{millis}: {seen:?}");
    }
}

/// It has a tenth of its workers.
#[tokio::test(start_paused = true)]
async fn it_follows_a_source_that_loses_capacity_and_recovers() {
    let source = Source::new(20, 100);
    crowd(&source);
    sleep(SECOND * 10).await;
    let lost = source.workers.acquire_many(18).await.expect("it is never closed");
    let seen = source.seen(MINUTE, HALF_A_MINUTE).await;
    assert!(seen.per_second > 18.0 && seen.most_inside <= 8, "{seen:?}");
    drop(lost);
    let seen = source.seen(HALF_A_MINUTE, HALF_A_MINUTE).await;
    assert!(seen.per_second > 180.0 && seen.most_inside <= 36, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_not_busy_leaves_it_as_it_is() {
    let database = Loads::adaptive(150);
    let items = Cache::<u64, u64>::builder("item", MemoryStore::new(10)).ttl(MINUTE);
    let items = items.max_loads(&database).build().unwrap();
    for key in 0..1_000 {
        let load = async || {
            sleep(SECOND / 10).await;
            Ok::<_, Infallible>(1)
        };
        items.get_or_load(key, load).await.expect("an answer");
    }
    idle().await;
    assert!(format!("{database:?}").contains("most: 4"), "{database:?}");
}
