//! Random histories of a process whose primary fails at some verbs: what it answers is never older than what
//! it has invalidated.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bellwether::store::{OutageStore, StoreErrorKind};
use bellwether::{Cache, MemoryStore};
use bellwether_testkit::caches::MINUTE;
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{OUTAGES, TTL};
use crate::support::store::{Faulty, On, Operation, remote};

/// One step of a history.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A request begins, and its load takes so many milliseconds.
    Ask(u64, u64),
    /// The source changes, and then its key is invalidated.
    Change(u64),
    /// The primary fails from now on at one verb, or at all.
    Fail(Option<Operation>, StoreErrorKind),
    /// Answers of the primary are lost.
    Lose(Option<Operation>),
    Heal,
    /// So many milliseconds pass.
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // An invalidation that does not reach the primary is one for the primary to repeat, as Redis has it.
    let reaches = |it: &Operation| *it != Operation::Invalidate;
    let verbs: Vec<_> = Operation::ALL.iter().copied().filter(reaches).collect();
    let key = 0..2_u64;
    let verb = prop::sample::select(verbs);
    prop_oneof![
        6 => (key.clone(), 0..300_u64).prop_map(|(key, takes)| Step::Ask(key, takes)),
        2 => key.prop_map(Step::Change),
        2 => (verb.clone(), prop::sample::select(&OUTAGES[..]))
            .prop_map(|(verb, kind)| Step::Fail(Some(verb), kind)),
        1 => prop::option::of(verb).prop_map(Step::Lose),
        1 => Just(Step::Heal),
        4 => (0..1_500_u64).prop_map(Step::Pass),
    ]
}

struct World {
    primary: Faulty,
    items: Cache<u64, u64>,
    /// The versions of the source, and those that are invalidated: older ones must not be given.
    source: [AtomicU64; 2],
    least: [AtomicU64; 2],
}

impl World {
    fn new() -> Arc<Self> {
        let primary = remote(&MemoryStore::new(10));
        let store = OutageStore::new(primary.clone(), TTL);
        let items = Cache::builder("item", store).ttl(MINUTE).jitter(0.0).build().unwrap();
        Arc::new(Self { primary, items, source: Default::default(), least: Default::default() })
    }

    async fn ask(self: Arc<Self>, key: u64, takes: u64) {
        let of = key as usize;
        let least = self.least[of].load(SeqCst);
        let at = Arc::clone(&self);
        let load = move || async move {
            let read = at.source[of].load(SeqCst);
            sleep(Duration::from_millis(takes)).await;
            Ok::<_, Infallible>(read)
        };
        let given = self.items.get_or_load(key, load).await.expect("an answer");
        assert!(given >= least, "{given} of {key}, though {least} was invalidated");
    }

    async fn change(&self, key: u64) {
        let of = key as usize;
        let changed = self.source[of].fetch_add(1, SeqCst) + 1;
        _ = self.items.invalidate(key).await;
        self.least[of].fetch_max(changed, SeqCst);
    }

    fn at(&self, verb: Option<Operation>) -> On {
        verb.map_or_else(|| self.primary.on_any(), |verb| self.primary.on(verb))
    }
}

async fn play(history: Vec<Step>) {
    let world = World::new();
    let mut tasks = JoinSet::new();
    for step in history {
        let at = Arc::clone(&world);
        match step {
            Step::Ask(key, takes) => drop(tasks.spawn(async move { at.ask(key, takes).await })),
            Step::Change(key) => drop(tasks.spawn(async move { at.change(key).await })),
            Step::Fail(verb, kind) => world.at(verb).fail(kind),
            Step::Lose(verb) => world.at(verb).do_it_but_fail(StoreErrorKind::TimedOut),
            Step::Heal => world.primary.heal(),
            Step::Pass(millis) => sleep(Duration::from_millis(millis)).await,
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no older answer");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_answer_is_older_than_what_this_process_has_invalidated(history in vec(step(), 1..60)) {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(play(history));
    }
}

/// The others of a fleet change the source, and this process does not learn of it.
#[tokio::test(start_paused = true)]
async fn without_the_primary_no_answer_is_older_than_the_ttl_and_its_load() {
    let world = World::new();
    world.primary.on_any().fail(StoreErrorKind::Unreachable);
    for tick in 0..1_000_u64 {
        // Each millisecond has a version.
        world.source[0].store(tick * 10, SeqCst);
        let oldest = (tick * 10).saturating_sub(TTL.as_millis() as u64 + 10);
        world.least[0].store(oldest, SeqCst);
        Arc::clone(&world).ask(0, 0).await;
        sleep(Duration::from_millis(10)).await;
    }
}
