//! Stored values are compared with what is loaded since: a writer that forgets to invalidate is found, and one that
//! does not is never accused.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bellwether::stats::AuditStats;
use bellwether::store::Store;
use bellwether::{Cache, MemoryStore};
use bellwether_testkit::caches::{MINUTE, SECOND, idle};
use tokio::time::{advance, sleep};

use crate::support::store::{local, remote};

/// A table of numbers, and a cache in front of it.
#[derive(Clone)]
struct Shop {
    prices: Arc<Vec<AtomicU64>>,
    loads: Arc<AtomicU64>,
    cache: Cache<u64, u64>,
}

impl Shop {
    fn new(
        store: impl Store,
        options: impl FnOnce(bellwether::CacheBuilder<u64, u64>) -> bellwether::CacheBuilder<u64, u64>,
    ) -> Self {
        let builder = Cache::builder("price", store).ttl(MINUTE * 60).jitter(0.0);
        let prices = Arc::new((0..1000).map(|_| AtomicU64::new(1)).collect());
        Self { prices, loads: Arc::default(), cache: options(builder).build().unwrap() }
    }

    async fn read(&self, item: u64) -> u64 {
        let this = self.clone();
        let load = async move || {
            this.loads.fetch_add(1, SeqCst);
            Ok::<_, Infallible>(this.prices[item as usize].load(SeqCst))
        };
        self.cache.get_or_load(item, load).await.unwrap()
    }

    fn write(&self, item: u64) {
        self.prices[item as usize].fetch_add(1, SeqCst);
    }

    fn audits(&self) -> AuditStats {
        self.cache.stats().audits
    }
}

#[tokio::test(start_paused = true)]
async fn a_refresh_says_whether_it_has_changed_the_value() {
    let shop = Shop::new(MemoryStore::new(10), |it| it.stale_while_revalidate(MINUTE));
    shop.read(1).await;
    for _ in 0..2 {
        advance(MINUTE * 60 + SECOND).await;
        shop.read(1).await;
        idle().await;
        shop.write(1);
    }
    let AuditStats { changed, unchanged, .. } = shop.audits();
    assert_eq!((changed, unchanged), (1, 1));
}

/// As of maps, whose bytes depend on their order; and of values without bytes.
#[tokio::test(start_paused = true)]
async fn the_program_may_say_which_values_are_the_same() {
    let is_same = |one: &u64, other: &u64| one % 2 == other % 2;
    let encoded = Cache::<u64, u64>::builder("even", MemoryStore::new(10)).ttl(MINUTE);
    let encoded = encoded.stale_while_revalidate(MINUTE * 60).compare_by(is_same).build().unwrap();
    let as_is = Cache::<u64, u64, _>::in_process("as is", MemoryStore::new(10)).ttl(MINUTE);
    let as_is = as_is.stale_while_revalidate(MINUTE * 60).compare_by(is_same).build().unwrap();
    for value in [2, 4, 5] {
        let load = async move || Ok::<_, Infallible>(value);
        _ = encoded.get_or_load(1, load).await.unwrap();
        _ = as_is.get_or_load(1, load).await.unwrap();
        idle().await;
        advance(MINUTE * 2).await;
    }
    for audits in [encoded.stats().audits, as_is.stats().audits] {
        assert_eq!((audits.changed, audits.unchanged), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn without_an_audit_no_hit_loads() {
    let shop = Shop::new(MemoryStore::new(1000), |it| it.audit(0.0));
    for _ in 0..1000 {
        shop.read(1).await;
    }
    assert_eq!((shop.loads.load(SeqCst), shop.audits().total()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_set_share_of_hits_is_loaded_again() {
    for place in [local, remote] {
        let shop = Shop::new(place(&MemoryStore::new(1000)), |it| it.audit(0.01));
        for _ in 0..1001 {
            shop.read(1).await;
            idle().await;
        }
        let loads = shop.loads.load(SeqCst);
        assert!((10..=12).contains(&loads), "{loads}");
        assert_eq!(shop.audits().confirmed, loads - 1);
        assert_eq!(shop.cache.stats().loads.audit, loads - 1);
    }
}

/// One of 1,000 writes is not followed by an invalidation. Its key is read as often as the others.
#[tokio::test(start_paused = true)]
async fn a_writer_that_forgets_one_of_1000_invalidations_is_found() {
    let rate = 0.1;
    let shop = Shop::new(MemoryStore::new(2000), |it| it.audit(rate));
    for item in 0..1000 {
        shop.read(item).await;
        shop.write(item);
        if item != 700 {
            shop.cache.invalidate(item).await.unwrap();
        }
    }
    // The expected number of hits of that key until one is audited, three times.
    let rounds = (3.0 / rate) as usize;
    for _ in 0..rounds {
        for item in 0..1000 {
            // No multiple of the share meets the same keys.
            if (item * 7 + 3) % 11 != 0 {
                shop.read(item).await;
            }
        }
        idle().await;
    }
    sleep(SECOND * 11).await;
    let audits = shop.audits();
    assert_eq!((audits.stale_served, audits.undecided), (1, 0), "{audits:?}");
    let ages = shop.cache.stats().stale_ages;
    assert_eq!(ages.count(), 1);
    assert_eq!(shop.read(700).await, 2, "the audit has replaced it");
}

#[tokio::test(start_paused = true)]
async fn writers_that_invalidate_are_never_found_however_many_there_are() {
    for shadow in [false, true] {
        let audits = audit_correct_writers(50, Duration::from_millis(50), shadow).await;
        assert_eq!((audits.stale_served, audits.would_be_wrong), (0, 0), "{audits:?}");
        assert!(audits.undecided > 100, "{audits:?}");
    }
}

#[tokio::test(start_paused = true)]
#[ignore = "takes minutes"]
async fn a_million_correct_writes_give_no_finding() {
    let begun = std::time::Instant::now();
    let audits = audit_correct_writers(5_000, Duration::from_millis(250), false).await;
    println!("1,000,000 writes in {:.0?}: {audits:?}", begun.elapsed());
    assert_eq!(audits.stale_served, 0, "{audits:?}");
    assert!(audits.undecided > 10_000, "{audits:?}");
}

/// Each of 200 writers changes the source, is held up for up to nine seconds, and invalidates, for some rounds.
async fn audit_correct_writers(rounds: u64, read_every: Duration, shadow: bool) -> AuditStats {
    let shop = Shop::new(MemoryStore::new(2000), |it| it.audit(1.0).shadow(shadow));
    let writers = (0..200_u64).map(|writer| {
        let shop = shop.clone();
        tokio::spawn(async move {
            for round in 0..rounds {
                let item = (writer * 31 + round * 17) % 20;
                shop.write(item);
                sleep(Duration::from_millis((writer * 7919 + round * 104_729) % 9000)).await;
                shop.cache.invalidate(item).await.unwrap();
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let reader = shop.clone();
    let reader = tokio::spawn(async move {
        loop {
            for item in 0..20 {
                reader.read(item).await;
            }
            sleep(read_every).await;
        }
    });
    for writer in writers {
        writer.await.unwrap();
    }
    sleep(SECOND * 20).await;
    reader.abort();
    shop.audits()
}

#[tokio::test(start_paused = true)]
async fn a_shadow_serves_what_is_loaded_and_says_what_the_cache_would_have_done() {
    for place in [local, remote] {
        let shop = Shop::new(place(&MemoryStore::new(100)), |it| it.shadow(true));
        assert_eq!(shop.read(1).await, 1);
        assert_eq!(shop.read(1).await, 1);
        shop.write(1);
        assert_eq!(shop.read(1).await, 2, "the stored value is old, and is not served");
        sleep(SECOND * 11).await;
        let audits = shop.audits();
        assert_eq!((audits.would_miss, audits.would_hit, audits.would_be_wrong), (1, 2, 1));
        shop.cache.invalidate(1).await.unwrap();
        assert_eq!(shop.read(1).await, 2);
        assert_eq!(shop.audits().would_miss, 2);
        assert_eq!(shop.cache.get(1).await.unwrap(), None);
        assert_eq!(shop.loads.load(SeqCst), 4);
    }
}

/// Another process loads the key, for long.
#[tokio::test(start_paused = true)]
async fn a_shadow_does_not_wait_for_another_process() {
    let memory = MemoryStore::new(100);
    let lease = bellwether_testkit::caches::lease(&memory, 1, MINUTE).await;
    let cache: Cache<u64, u64> =
        Cache::builder("item", memory).ttl(MINUTE).shadow(true).build().unwrap();
    let begun = tokio::time::Instant::now();
    let answer = cache.get_or_load(1, async || Ok::<_, Infallible>(7)).await;
    assert_eq!((answer.unwrap(), begun.elapsed()), (7, Duration::ZERO));
    drop(lease);
}
