//! A burst: many callers that miss one key at the same moment, per caller.
//!
//! Each burst is of a new key, with a task for every caller. It is measured from the first spawn to
//! the last answer: with a loader that answers at once, and with one that waits until all callers
//! wait for it. The baselines are moka's `get_with`, which coalesces too, and tasks that wait for a
//! `tokio::sync::watch` to change, about the least that notifying so many can cost.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bellwether::{Key, MemoryStore, ReadThroughLayer};
use moka::future::Cache;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::{Layer, Service, service_fn};

use crate::crowd::Crowd;
use crate::figures::{Number, Wanted};
use crate::paired::{Effort, Race, timed};
use crate::product::Product;

pub(crate) fn run(effort: Effort) {
    let effort = effort.in_long_turns();
    let runtime = Runtime::new().expect("a runtime");
    for (gated, what) in [(false, "at once"), (true, "gated")] {
        for callers in [1, 16, 256, 4096] {
            let s = if callers == 1 { "" } else { "s" };
            let mut race = Race::new("bursts", format!("{callers} caller{s}, {what}"));
            let ours = enter_us(&mut race, &Arc::new(Gate::new(callers, gated)), &runtime);
            let moka = enter_moka(&mut race, &Arc::new(Gate::new(callers, gated)), &runtime);
            let notified = enter_watch(&mut race, &Arc::new(Gate::new(callers, gated)), &runtime);
            let outcome = race.run(effort);
            outcome.print(&[ours, moka, notified]);
            outcome.print_times(ours, moka, Wanted::Nothing);
            outcome.print_times(ours, notified, Wanted::Nothing);
        }
    }
}

fn enter_us<'r>(race: &mut Race<'r>, gate: &Arc<Gate>, runtime: &'r Runtime) -> Number {
    let gate_of_loads = Arc::clone(gate);
    let layer = ReadThroughLayer::builder(MemoryStore::new(10_000), |burst: &u64| {
        Key::of("item").with(*burst)
    });
    let catalog =
        layer.ttl(Duration::from_secs(3600)).build().unwrap().layer(service_fn(move |burst| {
            let gate = Arc::clone(&gate_of_loads);
            async move { Ok::<_, Infallible>(gate.load(burst).await) }
        }));
    enter(race, "bellwether", gate, runtime, move |burst| catalog.clone().call(burst))
}

fn enter_moka<'r>(race: &mut Race<'r>, gate: &Arc<Gate>, runtime: &'r Runtime) -> Number {
    let cache = Cache::new(10_000);
    let gate_of_loads = Arc::clone(gate);
    enter(race, "moka get_with", gate, runtime, move |burst| {
        let cache = cache.clone();
        let gate = Arc::clone(&gate_of_loads);
        async move { cache.get_with(burst, gate.load(burst)).await }
    })
}

fn enter_watch<'r>(race: &mut Race<'r>, gate: &Arc<Gate>, runtime: &'r Runtime) -> Number {
    let waited_for = Arc::clone(gate);
    enter(race, "tokio watch", gate, runtime, move |burst| {
        let gate = Arc::clone(&waited_for);
        async move { gate.opened(burst).await }
    })
}

fn enter<'r, F>(
    race: &mut Race<'r>,
    name: &str,
    gate: &Arc<Gate>,
    runtime: &'r Runtime,
    ask: impl Fn(u64) -> F + 'r,
) -> Number
where
    F: Future<Output: Send> + Send + 'static,
{
    let gate = Arc::clone(gate);
    let mut bursts = 0..;
    race.enter(name, gate.callers, move |times| {
        timed(|| {
            for burst in bursts.by_ref().take(times) {
                runtime.block_on(gate.burst(burst, &ask));
            }
        })
    })
}

/// What holds loads back until all callers wait for them, if it does.
struct Gate {
    callers: usize,
    crowd: Option<Arc<Crowd>>,
    /// For how many bursts it has been opened.
    opened: watch::Sender<u64>,
}

impl Gate {
    fn new(callers: usize, gated: bool) -> Self {
        let crowd = gated.then(|| Crowd::new(callers));
        Self { callers, crowd, opened: watch::Sender::new(0) }
    }

    async fn burst<F>(&self, burst: u64, ask: impl Fn(u64) -> F)
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let mut callers = JoinSet::new();
        let asked = (0..self.callers).map(|_| ask(burst));
        match &self.crowd {
            Some(crowd) => {
                asked.for_each(|asked| drop(callers.spawn(crowd.join(asked))));
                crowd.gathered().await;
            }
            None => asked.for_each(|asked| drop(callers.spawn(asked))),
        }
        self.opened.send_replace(burst + 1);
        callers.join_all().await;
    }

    async fn load(&self, burst: u64) -> Product {
        if self.crowd.is_some() {
            self.opened(burst).await;
        }
        Product::new(burst)
    }

    async fn opened(&self, burst: u64) {
        let mut opened = self.opened.subscribe();
        opened.wait_for(|bursts| *bursts > burst).await.expect("the gate is there");
    }
}
