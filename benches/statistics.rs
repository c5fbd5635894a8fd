//! What the statistics cost: a count beside the hit that it counts.
//!
//! A hit in memory counts once, in its layer. A hit in the near tier counts twice, in its layer and
//! in its store. The counter is the one that both use.

use std::convert::Infallible;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bellwether::stats::Striped;
use bellwether::{Key, MemoryStore, ReadThroughLayer};
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, Service, service_fn};

use crate::figures::Wanted;
use crate::paired::{Effort, Race, Took, timed};

pub(crate) fn run(effort: Effort) {
    a_hit(effort);
    by_two_threads(effort.in_long_turns());
}

fn a_hit(effort: Effort) {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let layer =
        ReadThroughLayer::builder(MemoryStore::new(100), |sku: &u64| Key::of("item").with(*sku))
            .ttl(Duration::from_secs(3600))
            .build()
            .unwrap();
    let mut cached = layer.layer(service_fn(async |sku: u64| Ok::<_, Infallible>(sku)));
    let loading = Runtime::new().expect("a runtime");
    loading.block_on(cached.call(SKU)).expect("an answer");
    let counter = Striped::<1>::default();
    let shared = AtomicU64::new(0);
    let mut race = Race::new("stats", "one thread");
    let hit = race.enter_async("a hit in memory", &runtime, || cached.call(black_box(SKU)));
    let count = race.enter_plain("a count of it", || black_box(&counter).add(0));
    let twice = race.enter_plain("the two counts of a near hit", || {
        black_box(&counter).add(0);
        black_box(&counter).add(0);
    });
    let atomic = race
        .enter_plain("an atomic addition", || black_box(&shared).fetch_add(1, Ordering::Relaxed));
    let outcome = race.run(effort);
    outcome.print(&[hit, count, twice, atomic]);
    outcome.print_times(count, hit, Wanted::AtMost(0.05));
    outcome.print_times(count, atomic, Wanted::Nothing);
}

fn by_two_threads(effort: Effort) {
    let counter = Striped::<1>::default();
    let shared = AtomicU64::new(0);
    let mut race = Race::new("stats", "2 threads");
    let ours = race.enter("a count", THREADS, |times| on_threads(times, || counter.add(0)));
    let atomic = race.enter("an atomic addition", THREADS, |times| {
        on_threads(times, || _ = shared.fetch_add(1, Ordering::Relaxed))
    });
    let outcome = race.run(effort);
    outcome.print(&[ours, atomic]);
    outcome.print_times(ours, atomic, Wanted::AtMost(1.0));
}

fn on_threads(times: usize, count: impl Fn() + Sync) -> Took {
    timed(|| {
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..times).for_each(|_| black_box(&count)()));
            }
        });
    })
}

const SKU: u64 = 42;
const THREADS: usize = 2;
