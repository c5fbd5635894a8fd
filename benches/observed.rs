//! What it costs a hit to be observed: while a recorder is given the statistics, with a tracing subscriber at level
//! info, and with one of 1,000 hits audited. The baseline is the same hit without these.
//!
//! A hit counts in its own thread, and has no span, no event and no time. So a recorder and a
//! subscriber should cost it nothing but the lines of the processor's cache that they read. An audit loads in the
//! background, on the same thread here.

use std::convert::Infallible;
use std::fmt::Debug;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bellwether::metrics::publish;
use bellwether::stats::CacheStats;
use bellwether::store::Store;
use bellwether::{Key, MemoryStore, ReadThroughLayer};
use bellwether_redis::RedisOptions;
use bellwether_testkit::recorder::{Published, Snapshot};
use bellwether_testkit::servers::RedisServer;
use bellwether_testkit::spans::Spans;
use metrics_facade::with_local_recorder;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tower::{Layer, Service, service_fn};
use tracing::Level;
use tracing::subscriber::with_default;

use crate::figures::Wanted;
use crate::paired::{Effort, Race, timed};

pub(crate) fn run(effort: Effort) {
    let loading = Runtime::new().expect("a runtime");
    hit("in memory", MemoryStore::new(100), &loading, effort);
    let server = RedisServer::start();
    let options = RedisOptions::new(&server.url(), "test")
        .map(|options| options.near(16 * 1024 * 1024))
        .map(|options| options.near_ttl(AN_HOUR))
        .expect("options that make sense");
    let store = loading.block_on(options.connect()).expect("a store");
    hit("near", store, &loading, effort);
}

fn hit(case: &str, store: impl Store + Clone, loading: &Runtime, effort: Effort) {
    let layer = |rate| {
        ReadThroughLayer::builder(store.clone(), |sku: &u64| Key::of("item").with(*sku))
            .ttl(2 * AN_HOUR)
            .audit(rate)
            .build()
            .unwrap()
    };
    let (layer, audited) = (layer(0.0), layer(0.001));
    let loaded = service_fn(async |sku: u64| Ok::<_, Infallible>(sku));
    let (service, audited) = (layer.layer(loaded), audited.layer(loaded));
    for _ in 0..2 {
        loading.block_on(service.clone().call(SKU)).expect("an answer");
    }
    let scraper = Scraper::start({
        let handle = layer.handle();
        move || handle.stats()
    });
    let alone = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let hits = |times| make_hits(&alone, &service, times);
    let mut race = Race::new("observed", format!("a hit {case}"));
    let plain = race.enter("without", 1, |times| timed(|| hits(times)));
    let scraped = race.enter("while a recorder is given the statistics", 1, |times| {
        scraper.during(|| timed(|| hits(times)))
    });
    let traced = race.enter("with a subscriber at level info", 1, |times| {
        with_default(Spans::up_to(Level::INFO), || timed(|| hits(times)))
    });
    let audits = race.enter("with one of 1,000 audited", 1, |times| {
        timed(|| make_hits(&alone, &audited, times))
    });
    let outcome = race.run(effort);
    outcome.print(&[plain, scraped, traced, audits]);
    outcome.print_times(scraped, plain, Wanted::AtMost(1.15));
    outcome.print_times(traced, plain, Wanted::AtMost(1.05));
    outcome.print_times(audits, plain, Wanted::AtMost(1.05));
}

fn make_hits<S>(runtime: &Runtime, service: &S, times: usize)
where
    S: Service<u64, Error: Debug> + Clone,
{
    let mut service = service.clone();
    runtime.block_on(async {
        for hit in 1..=times {
            black_box(service.call(black_box(SKU)).await.expect("a hit"));
            if hit % BEFORE_A_YIELD == 0 {
                yield_now().await;
            }
        }
    });
}

/// A thread that publishes statistics a thousand times a second, while it is wanted.
struct Scraper {
    is_wanted: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Scraper {
    fn start(stats: impl Fn() -> CacheStats + Send + 'static) -> Self {
        let (is_wanted, is_over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (wanted, over) = (Arc::clone(&is_wanted), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            let recorder = Published::default();
            while !over.load(Ordering::Relaxed) {
                if wanted.load(Ordering::Relaxed) {
                    with_local_recorder(&recorder, || publish(&Snapshot("catalog", stats())));
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        Self { is_wanted, is_over, thread: Some(thread) }
    }

    fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.is_wanted.store(true, Ordering::Relaxed);
        let done = work();
        self.is_wanted.store(false, Ordering::Relaxed);
        done
    }
}

impl Drop for Scraper {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of it has been reported.
            _ = thread.join();
        }
    }
}

const SKU: u64 = 42;
/// After so many hits, the audits that they have begun run.
const BEFORE_A_YIELD: usize = 500;
const AN_HOUR: Duration = Duration::from_secs(3600);
