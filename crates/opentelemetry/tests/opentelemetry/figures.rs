//! The instruments have the figures of the statistics, by the names that Prometheus knows.

use std::time::Duration;

use bellwether::metrics::publish;
use bellwether::stats::{CacheStats, HistogramStats, StatsSource};
use bellwether::{Cache, MemoryStore};
use bellwether_opentelemetry::Instruments;
use bellwether_testkit::caches::MINUTE;
use bellwether_testkit::recorder::Snapshot;
use futures_util::future::join_all;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::{
    Aggregation, InMemoryMetricExporter, Instrument, SdkMeterProvider, Stream,
};
use tokio::runtime::Handle;

use crate::recorded::{Descriptions, Facade, Values, collected, exported};

/// How long a load takes.
const LOAD: Duration = Duration::from_millis(70);

/// A cache that has led a load and answered twice from what is stored.
async fn used(name: &str, store: &MemoryStore) -> Cache<u64, u64> {
    let cache = Cache::builder(name, store.clone()).ttl(MINUTE).build().expect("options");
    for _ in 0..3 {
        cache.get_or_load(42, async || Ok::<_, std::io::Error>(7)).await.unwrap();
    }
    cache
}

/// Callers that share a slow load, which fails or not.
async fn stampede(cache: &Cache<u64, u64>, sku: u64, callers: usize, fails: bool) {
    let load = async move || {
        tokio::time::sleep(LOAD).await;
        if fails { Err(std::io::Error::other("no answer")) } else { Ok(sku) }
    };
    let answers = join_all((0..callers).map(|_| cache.get_or_load(sku, load))).await;
    assert!(answers.iter().all(|answer| answer.is_err() == fails), "{answers:?}");
}

/// A cache whose statistics are read where time is paused. The SDK collects on a thread of its own.
struct Paused(Cache<u64, u64>, Handle);

impl StatsSource for Paused {
    type Stats = CacheStats;

    fn name(&self) -> &str {
        StatsSource::name(&self.0)
    }

    fn stats(&self) -> CacheStats {
        let _paused = self.1.enter();
        self.0.stats()
    }
}

pub(crate) struct Collector {
    exporter: InMemoryMetricExporter,
    provider: SdkMeterProvider,
}

impl Collector {
    pub(crate) fn new() -> (Self, Instruments) {
        Self::with_view(|_| None)
    }

    fn with_view(
        view: impl Fn(&Instrument) -> Option<Stream> + Send + Sync + 'static,
    ) -> (Self, Instruments) {
        let exporter = InMemoryMetricExporter::default();
        let builder = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone());
        let provider = builder.with_view(view).build();
        let instruments = Instruments::new(&provider.meter("bellwether"));
        (Self { exporter, provider }, instruments)
    }

    pub(crate) fn collect(&self) -> Values {
        collected(&self.provider, &self.exporter)
    }

    pub(crate) fn describe(&self) -> Descriptions {
        exported(&self.provider, &self.exporter)
    }
}

#[tokio::test(start_paused = true)]
async fn the_figures_are_those_of_the_metrics_facade() {
    let store = MemoryStore::new(100);
    let cache = used("item", &store).await;
    let (collector, instruments) = Collector::new();
    instruments.observe(Paused(cache.clone(), Handle::current()));
    instruments.observe(store.clone());

    let facade = Facade::default();
    let published = || {
        facade.publish(|| {
            publish(&cache);
            publish(&store);
        })
    };
    let hits = "bellwether_requests_total cache=item detail=local outcome=hit";
    assert_eq!(published().get(hits), Some(&2), "{:#?}", published());
    assert_eq!(collector.collect(), published());

    stampede(&cache, 1, 100, false).await;
    stampede(&cache, 2, 1, true).await;
    let values = published();
    let of = |name: &str| values.get(name).copied();
    assert_eq!(of("bellwether_wait_duration_seconds_count cache=item place=here"), Some(99));
    assert_eq!(of("bellwether_flight_callers_count cache=item"), Some(3));
    assert_eq!(of("bellwether_load_duration_seconds_count cache=item result=failed"), Some(1));
    assert_eq!(of("bellwether_load_duration_seconds_sum cache=item result=failed"), Some(70_000));
    assert_eq!(collector.collect(), values);
}

/// The facade is asked more often, and so gets its values in other parts.
#[tokio::test(start_paused = true)]
async fn a_value_of_a_histogram_is_recorded_once_however_often_it_is_collected() {
    let cache = used("item", &MemoryStore::new(100)).await;
    let (collector, instruments) = Collector::new();
    instruments.observe(cache.clone());
    let facade = Facade::default();
    for sku in 1..10 {
        stampede(&cache, sku, 5, false).await;
        facade.publish(|| publish(&cache));
        if sku % 3 == 0 {
            let values = collector.collect();
            assert_eq!(values, facade.publish(|| publish(&cache)));
            assert_eq!(values, collector.collect());
        }
    }
    let waits = "bellwether_wait_duration_seconds_count cache=item place=here";
    assert_eq!(collector.collect().get(waits), Some(&36));
}

#[tokio::test(start_paused = true)]
async fn each_of_two_readers_has_every_value() {
    let exporters = [InMemoryMetricExporter::default(), InMemoryMetricExporter::default()];
    let builder = SdkMeterProvider::builder().with_periodic_exporter(exporters[0].clone());
    let provider = builder.with_periodic_exporter(exporters[1].clone()).build();
    let instruments = Instruments::new(&provider.meter("bellwether"));
    let cache = used("item", &MemoryStore::new(100)).await;
    instruments.observe(cache.clone());
    stampede(&cache, 1, 10, false).await;
    collected(&provider, &exporters[0]);
    let published = Facade::default().publish(|| publish(&cache));
    for exporter in &exporters {
        assert_eq!(collected(&provider, exporter), published);
    }
}

#[tokio::test(start_paused = true)]
async fn a_view_that_drops_some_instruments_leaves_the_others() {
    let drop = |name| Stream::builder().with_name(name).with_aggregation(Aggregation::Drop);
    let (collector, instruments) = Collector::with_view(move |instrument| {
        let is_left =
            ["bellwether.load.duration", "bellwether.leases"].contains(&instrument.name());
        if is_left { None } else { drop(instrument.name().to_owned()).build().ok() }
    });
    let cache = used("item", &MemoryStore::new(100)).await;
    instruments.observe(cache);
    let values = collector.collect();
    let loads = "bellwether_load_duration_seconds_count cache=item result=succeeded";
    assert_eq!(values.get(loads), Some(&1), "{values:#?}");
    assert!(!values.keys().any(|name| name.contains("requests")), "{values:#?}");
}

/// So many values in each of these buckets.
pub(crate) fn histogram(of: HistogramStats, counts: &[(usize, u64)], sum: f64) -> HistogramStats {
    let mut stats = of;
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    for (bucket, count) in counts {
        stats.counts[*bucket] = *count;
        stats.sums[*bucket] = sum * *count as f64 / all as f64;
    }
    stats
}

/// All histograms differ, so that none can stand for another.
#[test]
fn every_histogram_of_a_cache_is_that_of_the_metrics_facade() {
    let stats = full_cache();
    let (collector, instruments) = Collector::new();
    instruments.observe(Snapshot("item", stats));
    let published = Facade::default().publish(|| publish(&Snapshot("item", stats)));
    let sums = published.keys().filter(|name| name.contains("_sum "));
    assert_eq!(sums.count(), 12, "{published:#?}");
    assert_eq!(collector.collect(), published);
}

/// Statistics of a cache whose histograms all have values.
pub(crate) fn full_cache() -> CacheStats {
    let mut stats = CacheStats::default();
    stats.current.flights = 1;
    stats.current.waiters = 2;
    stats.current.queued_loads = 3;
    stats.current.failing_keys = 4;
    let times = [
        &mut stats.load_times.succeeded,
        &mut stats.load_times.not_found,
        &mut stats.load_times.private,
        &mut stats.load_times.failed,
        &mut stats.load_times.timed_out,
        &mut stats.load_times.panicked,
        &mut stats.load_times.cancelled,
        &mut stats.wait_times.here,
        &mut stats.wait_times.elsewhere,
        &mut stats.notice_lag,
        &mut stats.stale_ages,
    ];
    for (at, times) in (1..).zip(times) {
        *times = histogram(*times, &[(at, 1), (at + 1, 2)], 0.01 * at as f64);
    }
    let callers = stats.flight_callers;
    stats.flight_callers = histogram(callers, &[(0, 7), (5, 2), (15, 1)], 20_047.0);
    stats
}

#[tokio::test]
async fn what_happens_later_is_in_the_next_collection() {
    let store = MemoryStore::new(100);
    let (collector, instruments) = Collector::new();
    assert_eq!(collector.collect(), Values::new());
    let [first, second] = [used("first", &store).await, used("second", &store).await];
    let led = |cache| format!("bellwether_requests_total cache={cache} detail=stored outcome=led");
    instruments.observe(first.clone());
    assert_eq!(collector.collect().get(&led("first")), Some(&1));

    instruments.observe(second);
    drop(instruments);
    first.get_or_load(43, async || Ok::<_, std::io::Error>(7)).await.unwrap();
    let values = collector.collect();
    assert_eq!((values.get(&led("first")), values.get(&led("second"))), (Some(&2), Some(&1)));
}
