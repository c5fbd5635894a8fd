//! Without its Redis, a process is a cache of its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bellwether::{Cache, CacheStatus, StaleReason, Tag};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_testkit::servers::RedisServer;
use bellwether_testkit::wait::within;
use futures_util::future::join_all;
use tokio::time::sleep;

use super::{SLACK, Site};

const KEYS: u64 = 50;
const TTL: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A process with its source.
#[derive(Clone)]
struct Process {
    store: RedisStore,
    items: Cache<u64, u64>,
    loads: Arc<AtomicU64>,
    source_fails: Arc<AtomicBool>,
}

impl Process {
    fn over(store: RedisStore) -> Self {
        let items = Cache::builder("item", store.clone()).ttl(TTL).stale_if_error(HOUR).build();
        let (loads, source_fails) = Default::default();
        Self { store, items: items.expect("options"), loads, source_fails }
    }

    async fn ask(&self, key: u64) -> (Option<u64>, CacheStatus) {
        let (loads, source_fails) = (Arc::clone(&self.loads), Arc::clone(&self.source_fails));
        let load = move || async move {
            let nth = loads.fetch_add(1, SeqCst) + 1;
            match source_fails.load(SeqCst) {
                true => Err(io::Error::other("the source is down")),
                false => Ok(nth),
            }
        };
        let (answer, status) = self.items.get_or_load(key, load).with_status().await;
        (answer.ok(), status)
    }

    /// Asks for all keys, every ten milliseconds. Returns how many requests had no answer.
    async fn trade(&self, period: Duration) -> usize {
        let over = Instant::now() + period;
        let callers = (0..KEYS).map(async |key| {
            let mut failed = 0;
            while Instant::now() < over {
                failed += usize::from(self.ask(key).await.0.is_none());
                sleep(Duration::from_millis(10)).await;
            }
            failed
        });
        join_all(callers).await.into_iter().sum()
    }

    /// Loads while it trades for so many seconds, per key.
    async fn loads_per_key(&self, seconds: u64) -> f64 {
        let before = self.loads.load(SeqCst);
        assert_eq!(self.trade(Duration::from_secs(seconds)).await, 0);
        (self.loads.load(SeqCst) - before) as f64 / KEYS as f64
    }
}

fn with_memory(url: &str) -> RedisOptions {
    RedisOptions::new(url, "test").expect("an address")
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_redis_a_process_loads_a_hot_key_once_per_outage_ttl() {
    let refuse = |site: &Site| {
        site.proxy.refuse();
        site.proxy.cut();
    };
    for outage in [refuse, |site: &Site| site.proxy.blackhole()] {
        let site = Site::start().await;
        let store = with_memory(&site.proxy.url()).connect().await.expect("a store");
        let process = Process::over(store);
        process.trade(Duration::from_millis(200)).await;
        assert_eq!(process.loads.load(SeqCst), KEYS);
        outage(&site);
        let loads = process.loads_per_key(5).await;
        println!("{loads} loads per key in 5 s; {:?}", process.store.stats().outage);
        assert!((2.0..=7.0).contains(&loads), "{loads} loads per key in 5 s");
        assert!(process.store.stats().outage.hits > 100 * KEYS);

        site.proxy.heal();
        let back = Instant::now();
        let before = process.store.stats().operation_times.lookup.count();
        let is_back = || {
            let stats = process.store.stats();
            !stats.is_down && stats.operation_times.lookup.count() > before
        };
        let trading = tokio::spawn({
            let process = process.clone();
            async move { process.trade(Duration::from_secs(4)).await }
        });
        within(SLACK, is_back).await;
        println!("in use again after {:?}", back.elapsed());
        assert!(back.elapsed() < Duration::from_secs(1), "{:?}", back.elapsed());
        assert_eq!(trading.await.expect("no panic"), 0);
        let outage = process.store.stats().outage;
        assert_eq!(outage.entries, 0, "the memory is freed");
        // It answers from Redis alone.
        assert_eq!(process.trade(Duration::from_millis(100)).await, 0);
        assert_eq!(process.store.stats().outage.hits, outage.hits);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_redis_costs_a_load_per_key_and_outage_ttl() {
    let server = RedisServer::start();
    let store = with_memory(&server.url()).connect().await.expect("a store");
    let process = Process::over(store);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let loads = process.loads_per_key(5).await;
    println!("{loads} loads per key in 5 s of a full server");
    assert!((3.0..=7.0).contains(&loads), "{loads} loads per key in 5 s");
    assert!(!process.store.is_down());
}

#[tokio::test(flavor = "multi_thread")]
async fn near_copies_serve_hot_keys_while_redis_and_the_source_are_down() {
    for kills in [true, false] {
        let mut site = Site::start().await;
        let options = with_memory(&site.proxy.url()).near(1 << 20);
        let process = Process::over(options.connect().await.expect("a store"));
        process.trade(Duration::from_millis(500)).await;
        assert!(process.store.stats().near.is_some_and(|near| near.entries == KEYS));
        process.source_fails.store(true, SeqCst);
        match kills {
            true => site.server.kill(),
            false => site.proxy.blackhole(),
        }
        assert_eq!(process.trade(Duration::from_secs(4)).await, 0, "requests failed");
        let (_, status) = process.ask(1).await;
        let CacheStatus::Stale { why: StaleReason::StoreFailed, stale_for } = status else {
            panic!("{status:?}")
        };
        assert!(
            stale_for < Duration::from_secs(6),
            "{stale_for:?}: since the end of the connection"
        );
        let stats = process.items.stats();
        println!("{:?}", stats.requests);
        assert!(stats.requests.stale_store_failed > KEYS);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn near_copies_that_this_process_has_invalidated_are_served_to_no_caller() {
    let mut site = Site::start().await;
    let options = with_memory(&site.proxy.url()).near(1 << 20);
    let process = Process::over(options.connect().await.expect("a store"));
    let tagged = process.items.tagged([Tag::of("shelf")]);
    process.trade(Duration::from_millis(300)).await;
    let load = || async { Ok::<_, io::Error>(1) };
    for _ in 0..3 {
        tagged.get_or_load(1_000, load).await.expect("an answer");
    }
    process.source_fails.store(true, SeqCst);
    site.server.kill();
    process.items.invalidate(1).await.expect_err("it is down");
    let handle = process.items.handle();
    handle.invalidate_tag(&Tag::of("shelf")).await.expect_err("it is down");
    assert_eq!(process.ask(1).await.0, None);
    let fail = || async { Err::<u64, _>(io::Error::other("the source is down")) };
    assert!(tagged.get_or_load(1_000, fail).await.is_err());
    assert!(process.ask(2).await.0.is_some());
}
