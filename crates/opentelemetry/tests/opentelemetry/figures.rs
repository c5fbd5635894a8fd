//! The instruments have the figures of the statistics, by the names that Prometheus knows.

use bellwether::metrics::{publish_cache, publish_memory_store};
use bellwether::{Cache, MemoryStore};
use bellwether_opentelemetry::Instruments;
use bellwether_testkit::caches::MINUTE;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};

use crate::recorded::{Values, collected, published};

/// A cache that has led a load and answered twice from what is stored.
async fn used(name: &str, store: &MemoryStore) -> Cache<u64> {
    let cache = Cache::builder(name, store.clone()).ttl(MINUTE).build();
    for _ in 0..3 {
        cache.get_or_load(42, async || Ok::<_, std::io::Error>(7)).await.unwrap();
    }
    cache
}

struct Collector {
    exporter: InMemoryMetricExporter,
    provider: SdkMeterProvider,
}

impl Collector {
    fn new() -> (Self, Instruments) {
        let exporter = InMemoryMetricExporter::default();
        let builder = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone());
        let provider = builder.build();
        let instruments = Instruments::new(&provider.meter("bellwether"));
        (Self { exporter, provider }, instruments)
    }

    fn collect(&self) -> Values {
        collected(&self.provider, &self.exporter)
    }
}

#[tokio::test]
async fn the_figures_are_those_of_the_metrics_facade() {
    let store = MemoryStore::new(100);
    let cache = used("item", &store).await;
    let (collector, instruments) = Collector::new();
    let stats = cache.clone();
    let memory = store.clone();
    instruments.observe_cache("item", move || stats.stats());
    instruments.observe_memory_store("pages", move || memory.stats());

    let published = published(|| {
        publish_cache("item", &cache.stats());
        publish_memory_store("pages", &store.stats());
    });
    let hits = "bellwether_requests_total cache=item detail=local outcome=hit";
    assert_eq!(published.get(hits), Some(&2), "{published:#?}");
    assert_eq!(collector.collect(), published);
}

/// A server whose figures are these and the following ones.
#[cfg(feature = "redis")]
fn node(address: &str, first: u64) -> bellwether::RedisNodeStats {
    let mut stats = bellwether::RedisNodeStats::default();
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
#[cfg(feature = "redis")]
#[test]
fn the_figures_of_a_redis_store_are_those_of_the_metrics_facade() {
    let mut stats = bellwether::RedisStats::default();
    stats.connects = 1;
    stats.outages = 2;
    stats.pushes = 3;
    stats.unreadable = 4;
    stats.operations.lookup = 5;
    stats.operations.commit = 6;
    stats.errors.down = 7;
    stats.errors.timed_out = 8;
    stats.is_down = true;
    stats.replay.pending = 9;
    stats.replay.kept = 10;
    stats.replay.replayed = 11;
    stats.replay.dropped = 12;
    stats.replay.reasserted = 13;
    let near = stats.near.insert(bellwether::stats::NearStats::default());
    near.hits = 14;
    near.entries = 15;
    near.bytes = 16;
    near.evictions = 17;
    near.disconnected = std::time::Duration::from_secs(18);
    stats.wake_ups = bellwether::RedisWakeUps::Messages;
    stats.nodes = [node("one:6379", 19), node("other:6379", 29)].to_vec();

    let (collector, instruments) = Collector::new();
    let observed = stats.clone();
    instruments.observe_redis_store("redis", move || observed.clone());
    let published = published(|| bellwether::metrics::publish_redis_store("redis", &stats));
    assert!(published.len() > 50, "{published:#?}");
    assert_eq!(collector.collect(), published);
}

#[tokio::test]
async fn what_happens_later_is_in_the_next_collection() {
    let store = MemoryStore::new(100);
    let (collector, instruments) = Collector::new();
    assert_eq!(collector.collect(), Values::new());
    let [first, second] = [used("first", &store).await, used("second", &store).await];
    let led = |cache| format!("bellwether_requests_total cache={cache} detail=stored outcome=led");
    let loaded = first.clone();
    instruments.observe_cache("first", move || loaded.stats());
    assert_eq!(collector.collect().get(&led("first")), Some(&1));

    instruments.observe_cache("second", move || second.stats());
    drop(instruments);
    first.get_or_load(43, async || Ok::<_, std::io::Error>(7)).await.unwrap();
    let values = collector.collect();
    assert_eq!((values.get(&led("first")), values.get(&led("second"))), (Some(&2), Some(&1)));
}
