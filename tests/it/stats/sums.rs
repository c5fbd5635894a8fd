//! Whatever happens, the counters add up: requests to callers, and loads to calls of the loader.

use bellwether::{CacheStatus, Lifetimes, MemoryStore, Wait, WhenAbandoned};
use bellwether_testkit::caches::{Cached, JSON, SECOND, ask, key, layer, put_for};
use bellwether_testkit::loaders::{End, Loader};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{Duration, sleep};
use tower::Layer;

use super::PLACES;
use crate::support::store::{Faulty, Operation, UNREACHABLE};

/// Three processes over one store, and what they were asked.
struct Fleet {
    random: StdRng,
    memory: MemoryStore,
    stores: Vec<Faulty>,
    loaders: Vec<Loader>,
    caches: Vec<Cached>,
}

#[derive(Default)]
struct Told {
    callers: u64,
    left: u64,
    led: u64,
    collapsed: u64,
}

impl Fleet {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let memory = MemoryStore::new(10);
        let mut fleet = Self {
            random: random.clone(),
            memory,
            stores: vec![],
            loaders: vec![],
            caches: vec![],
        };
        for _ in 0..3 {
            let store = PLACES[random.random_range(0..2)](&fleet.memory);
            let loader = Loader::taking(Duration::from_millis(random.random_range(0..3_000)));
            let abandoned =
                [WhenAbandoned::Cancel, WhenAbandoned::Finish][random.random_range(0..2)];
            let wait =
                [Wait::at_most(SECOND), Wait::at_most(SECOND).then_load(), Wait::fail_fast()];
            let layer = layer(store.clone())
                .stale_while_revalidate(SECOND)
                .stale_if_error(SECOND * 2)
                .ttl(SECOND)
                .when_abandoned(abandoned)
                .wait(wait[random.random_range(0..3)])
                .max_waiters(6)
                .max_loads(2)
                .build()
                .expect("bounds");
            fleet.caches.push(layer.layer(loader.clone()));
            fleet.stores.push(store);
            fleet.loaders.push(loader);
        }
        fleet
    }

    /// One thing that happens to one process.
    async fn happens(&mut self, at: usize) {
        match self.random.random_range(0..10) {
            0 => _ = self.caches[at].handle().invalidate(&key(1)).await,
            1 => _ = self.caches[at].handle().expire(&key(1)).await,
            2 => self.stores[at].on_any().fail(UNREACHABLE),
            3 => self.stores[at].on(Operation::Commit).do_it_but_fail(UNREACHABLE),
            4 | 5 => self.stores[at].heal(),
            6 => self.loaders[at].ends_by(End::Fail),
            7 | 8 => self.loaders[at].ends_by(End::Answer),
            _ => {
                let lifetimes = Lifetimes::fresh_for(SECOND).stale_while_revalidate(SECOND);
                if !bellwether_testkit::caches::is_leased(&self.memory, 2).await {
                    put_for(&self.memory, 2, "42", JSON, lifetimes).await;
                }
            }
        }
    }

    /// Asks for a while, and returns what callers were told, per process.
    async fn plays(&mut self) -> Vec<Told> {
        let mut told: Vec<Told> = (0..3).map(|_| Told::default()).collect();
        for _ in 0..60 {
            let at = self.random.random_range(0..3);
            self.happens(at).await;
            let callers = self.random.random_range(0..8);
            let asked: Vec<_> = (0..callers)
                .map(|_| ask(&self.caches[at], self.random.random_range(1..3)))
                .collect();
            sleep(Duration::from_millis(self.random.random_range(1..500))).await;
            let told = &mut told[at];
            told.callers += callers;
            for caller in asked {
                if self.random.random_range(0..4) == 0 {
                    caller.abort();
                }
                match caller.await {
                    Err(_) => told.left += 1,
                    Ok((_, CacheStatus::Led { .. })) => told.led += 1,
                    Ok((_, CacheStatus::Collapsed { .. })) => told.collapsed += 1,
                    Ok(_) => {}
                }
            }
        }
        told
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_callers_and_loads_are_calls_whatever_happens() {
    let mut led = 0;
    for seed in 0..40 {
        let mut fleet = Fleet::new(seed);
        let told = fleet.plays().await;
        sleep(Duration::from_secs(3600)).await;
        for ((told, cache), loader) in told.iter().zip(&fleet.caches).zip(&fleet.loaders) {
            let stats = cache.stats();
            let requests = stats.requests;
            assert_eq!(requests.total(), told.callers, "seed {seed}: {requests:?}");
            assert_eq!(requests.left, told.left, "seed {seed}");
            assert_eq!(requests.led(), told.led, "seed {seed}");
            assert_eq!(requests.collapsed(), told.collapsed, "seed {seed}");
            assert_eq!(stats.loads.total(), loader.loads() as u64, "seed {seed}");
            assert_eq!(stats.running_loads(), 0, "seed {seed}");
            assert_eq!(stats.load_times.cancelled.count(), loader.dropped() as u64, "seed {seed}");
            assert_eq!(stats.load_times.total(), loader.loads() as u64, "seed {seed}");
            let waits = [stats.wait_times.here, stats.wait_times.elsewhere].map(|it| it.count());
            let collapsed = [requests.collapsed_local, requests.collapsed_remote];
            assert_eq!(waits, collapsed, "seed {seed}");
            led += told.led;
        }
    }
    assert!(led > 100, "{led} loads are too few to show anything");
}
