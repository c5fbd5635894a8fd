//! Every figure has an instrument: of caches, stores and locks.

use std::time::Duration;

use bellwether::metrics::publish;
use bellwether::stats::MemoryStats;
use bellwether_lock::LockStats;
use bellwether_redis::{NearStats, RedisNodeStats, RedisStats};
use bellwether_testkit::recorder::Snapshot;

use crate::figures::{Collector, full_cache, histogram};
use crate::recorded::{Descriptions, Facade, names};

/// A server whose figures are these and the following ones.
fn node(address: &str, first: u64) -> RedisNodeStats {
    let mut stats = RedisNodeStats::default();
    stats.address = address.to_owned();
    stats.requests = first;
    stats.redirections = first + 1;
    stats.connects = first + 2;
    stats.outages = first + 3;
    stats.errors.not_ready = first + 4;
    stats.is_down = first.is_multiple_of(2);
    stats
}

/// All figures of a store differ, so that none can stand for another.
fn redis_store() -> RedisStats {
    let mut stats = RedisStats::default();
    stats.connects = 1;
    stats.outages = 2;
    stats.pushes = 3;
    stats.unreadable = 4;
    stats.errors.down = 7;
    stats.errors.timed_out = 8;
    stats.is_down = true;
    stats.replay.pending = 9;
    stats.replay.kept = 10;
    stats.replay.replayed = 11;
    stats.replay.dropped = 12;
    stats.replay.reasserted = 13;
    let near = stats.near.insert(NearStats::default());
    near.hits = 14;
    near.entries = 15;
    near.bytes = 16;
    near.evictions = 17;
    near.disconnected = Duration::from_secs(18);
    stats.is_subscribed = true;
    stats.nodes = [node("one:6379", 30), node("other:6379", 41)].to_vec();
    let times = &mut stats.operation_times;
    times.lookup = histogram(times.lookup, &[(0, 19), (1, 20)], 0.021);
    times.acquire = histogram(times.acquire, &[(2, 22), (14, 1)], 20.0);
    stats
}

fn locks() -> LockStats {
    let mut stats = LockStats::default();
    stats.acquired = 1;
    stats.busy = 2;
    stats.timed_out = 3;
    stats.failed = 4;
    stats.left = 5;
    stats.renewed = 6;
    stats.renewals_failed = 7;
    stats.lost = 8;
    stats.held = 9;
    stats.wait_times = histogram(stats.wait_times, &[(3, 10), (8, 5)], 0.5);
    stats
}

#[test]
fn the_figures_of_a_redis_store_are_those_of_the_metrics_facade() {
    let store = Snapshot("redis", redis_store());
    let (collector, instruments) = Collector::new();
    instruments.observe(store.clone());
    let published = Facade::default().publish(|| publish(&store));
    assert!(published.len() > 85, "{published:#?}");
    assert_eq!(collector.collect(), published);
}

#[test]
fn the_figures_of_locks_are_those_of_the_metrics_facade() {
    let locks = Snapshot("orders", locks());
    let (collector, instruments) = Collector::new();
    instruments.observe(locks.clone());
    let published = Facade::default().publish(|| publish(&locks));
    assert_eq!(published.get("bellwether_lock_held kind=orders"), Some(&9), "{published:#?}");
    assert_eq!(collector.collect(), published);
}

/// One that observes a source of each kind.
fn collector_of_everything() -> Collector {
    let (collector, instruments) = Collector::new();
    instruments.observe(Snapshot("item", full_cache()));
    instruments.observe(Snapshot("pages", MemoryStats::default()));
    instruments.observe(Snapshot("redis", redis_store()));
    instruments.observe(Snapshot("orders", locks()));
    collector
}

fn described() -> Descriptions {
    Facade::default().described(|| {
        publish(&Snapshot("item", full_cache()));
        publish(&Snapshot("pages", MemoryStats::default()));
        publish(&Snapshot("redis", redis_store()));
        publish(&Snapshot("orders", locks()));
    })
}

#[test]
fn every_metric_is_an_instrument_and_every_instrument_a_metric() {
    let metrics = described().into_keys().collect();
    assert_eq!(names(&collector_of_everything().collect()), metrics);
}

#[test]
fn every_instrument_has_the_description_and_the_unit_of_its_metric() {
    let metrics = described();
    assert!(metrics.values().all(|(_, text)| text.ends_with('.')), "{metrics:#?}");
    assert_eq!(collector_of_everything().describe(), metrics);
}
