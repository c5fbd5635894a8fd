//! The plan of a run: what its seed decides at the begin.

use std::time::Duration;

use bellwether::{Cache, Wait, WhenAbandoned};
use bellwether_redis::RedisStore;
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use crate::burst::Burst;
use crate::faults::FaultKind;
use crate::history::Loaded;
use crate::host::Millis;
use crate::operations::tag;
use crate::plan_kind::PlanKind;
use crate::server::ServerVersion;
use crate::time_costs::TimeCosts;
use crate::topology::Topology;

/// What the seed decides at the begin. A run has few kinds of faults, so that each can do its work.
#[derive(Clone, Debug)]
pub(crate) struct RunPlan {
    pub(crate) topology: Topology,
    pub(crate) version: ServerVersion,
    /// How long servers and processes need. None if they need no time.
    pub(crate) costs: Option<TimeCosts>,
    /// What happens instead of single operations and faults.
    pub(crate) burst: Option<Burst>,
    /// By how much the clocks of shards differ from that of the world, in microseconds.
    pub(crate) clock_errors: Vec<i64>,
    /// Whether each process has near copies.
    pub(crate) near: Vec<bool>,
    pub(crate) keys: u64,
    pub(crate) tags: u64,
    /// Whether tags are known only from what was loaded.
    pub(crate) tags_of_answers: bool,
    ttl: Millis,
    pub(crate) stale: [Millis; 2],
    pub(crate) refreshes_early: bool,
    loads_after_wait: bool,
    drops_abandoned: bool,
    /// How many operations begin at each tick, on average, in thousandths.
    pub(crate) rate: u32,
    /// One operation of so many is a change.
    pub(crate) changes: u32,
    /// Whether a database records all changes, and followers tell the cache of them.
    pub(crate) is_recorded: bool,
    /// How long a load takes at most.
    pub(crate) longest_load: Millis,
    /// One load of so many fails. None if none does.
    pub(crate) failures: Option<u32>,
    /// One caller of so many leaves.
    pub(crate) leaving: u32,
    /// How many invalidations a process keeps at most.
    pub(crate) kept: usize,
    pub(crate) faults: Vec<FaultKind>,
    /// The milliseconds between two faults, on average.
    pub(crate) pause: u32,
}

impl RunPlan {
    pub(crate) fn new(random: &mut SmallRng, kind: PlanKind) -> Self {
        let plan = Self::of_faults(random);
        match kind {
            PlanKind::Faults => plan,
            PlanKind::Slow => {
                let mut faults = plan.faults;
                FaultKind::add_slow(&mut faults, random);
                Self { costs: Some(TimeCosts::MEASURED), faults, ..plan }
            }
            PlanKind::Burst | PlanKind::FirstBurst => {
                let burst = Burst::new(random, kind == PlanKind::Burst);
                plan.with_burst(burst, random)
            }
        }
    }

    /// The same with many keys at once, and with default options.
    fn with_burst(self, burst: Burst, random: &mut SmallRng) -> Self {
        let mut pick = |options: &[usize]| *options.choose(random).expect("one");
        let processes = pick(&[4, 8, 16, 16]);
        let keys = pick(&[100, 500, 1_000, 2_000]);
        let topology = match pick(&[0, 0, 0, 1]) {
            0 => Topology::Single,
            _ => Topology::Cluster(3),
        };
        Self {
            topology,
            costs: Some(TimeCosts::MEASURED),
            burst: Some(burst),
            clock_errors: vec![0; topology.shards()],
            near: vec![false; processes],
            keys: WARM_KEYS + keys.min(MOST_CALLERS / processes) as u64,
            tags: 0,
            tags_of_answers: false,
            loads_after_wait: false,
            failures: None,
            leaving: NONE,
            kept: MOST_KEPT as usize,
            faults: Vec::new(),
            ..self
        }
    }

    fn of_faults(random: &mut SmallRng) -> Self {
        let mut pick = |options: &[u32]| *options.choose(random).expect("one");
        let processes = pick(&[1, 2, 3, 4]) as usize;
        let near = (0..processes).map(|_| pick(&[0, 1]) == 1).collect();
        let keys = u64::from(pick(&[1, 2, 5, 20]));
        let topology = match pick(&[0, 0, 0, 0, 1, 2]) {
            0 => Topology::Single,
            1 => Topology::Sentinel,
            _ => Topology::Cluster(pick(&[2, 3]) as usize),
        };
        let tags_of_answers = pick(&[0, 0, 1]) == 1;
        let clock_errors = clock_errors(topology, tags_of_answers, &mut pick);
        let plan = Self {
            topology,
            costs: None,
            burst: None,
            clock_errors,
            version: ServerVersion::ALL[pick(&[0, 1, 2, 3]) as usize],
            near,
            keys,
            tags: u64::from(pick(&[0, 1, 3])).min(keys),
            tags_of_answers,
            ttl: pick(&[150, 2_000, 20_000, 20_000]).into(),
            stale: [pick(&[0, 0, 500]).into(), pick(&[0, 0, 3_000]).into()],
            refreshes_early: pick(&[0, 1]) == 1,
            loads_after_wait: pick(&[0, 1]) == 1,
            drops_abandoned: pick(&[0, 0, 1]) == 1,
            rate: pick(&[100, 500, 2_000]),
            changes: pick(&[3, 10, 40, 400]),
            is_recorded: false,
            longest_load: pick(&[0, 5, 60]).into(),
            failures: Some(pick(&[0, 20, 1_000])).filter(|one_of| *one_of > 0),
            leaving: pick(&[4, 30, NONE]),
            kept: pick(&[1, MOST_KEPT, MOST_KEPT]) as usize,
            faults: FaultKind::menu(random, topology, tags_of_answers),
            pause: *[20, 100, 500].choose(random).expect("one"),
        };
        plan.suited_to_its_faults(random)
    }

    /// The same with what its faults need to do their work.
    fn suited_to_its_faults(self, random: &mut SmallRng) -> Self {
        // As many as are kept are asserted again after a loss.
        let is_single = self.topology == Topology::Single;
        let needs_all = !is_single || self.faults.iter().any(|it| it.needs_kept());
        let plan = if needs_all { Self { kept: MOST_KEPT as usize, ..self } } else { self };
        // A late message matters where the next lease of its key is taken before it arrives.
        let plan = match plan.faults.contains(&FaultKind::DelayMessages) && random.random() {
            true => Self { keys: 1, ttl: 20_000, rate: 500, changes: 40, longest_load: 60, ..plan },
            false => plan,
        };
        plan.recorded()
    }

    /// Where processes are killed, some plans are about rows that a server has lost, and that were applied by a process
    /// that has ended.
    fn recorded(self) -> Self {
        let is_killed = self.faults.contains(&FaultKind::KillProcess);
        if !is_killed || self.tags_of_answers || ![10, 40].contains(&self.changes) {
            return self;
        }
        let loss = match self.topology {
            Topology::Single => FaultKind::RestartOld,
            Topology::Sentinel | Topology::Cluster(_) => FaultKind::Failover,
        };
        let faults = vec![FaultKind::KillProcess, loss];
        // Each is loaded again soon after its row, and changes seldom, so that a lost row matters.
        let plan = Self { keys: 20, ttl: 20_000, rate: 100, changes: 40, pause: 100, ..self };
        Self { is_recorded: true, kept: MOST_KEPT as usize, faults, ..plan }
    }

    /// How long a caller waits at most, without a fault and with faults.
    ///
    /// Loads that changes have superseded follow each other. If there is a change during each, a caller may
    /// wait until its process has its turn, as long as the cache lets it. The outbox releases the lease of a `put` that was
    /// dropped. Where a fault ends links and no more, a caller also waits for new ones, and for the end of a
    /// lease whose grant was lost.
    pub(crate) fn bounds(&self) -> [Millis; 2] {
        if self.burst.is_some() {
            return [LONGEST_BURST; 2];
        }
        let loads = 12 * self.longest_load;
        let turns = if self.supersedes_all() { LONGEST_LEASE_WAIT } else { 0 };
        let ends_links_only = self.faults.iter().all(|it| it.ends_links_only());
        let released = if self.leaving == NONE { 0 } else { LATEST_RELEASE };
        let ends_links = if ends_links_only { 600 + loads + turns } else { LONGEST_WAIT };
        let queues = if self.costs.is_some() { 40 } else { 0 };
        [60 + queues + loads + released + turns, ends_links + queues]
    }

    /// Whether a key or its tag changes as often as the longest load ends.
    fn supersedes_all(&self) -> bool {
        let changes = u64::from(self.rate / self.changes) * self.longest_load;
        let of_tag = changes.checked_div(3 * self.tags).unwrap_or_default();
        of_tag.max(changes / self.keys) >= 1_000
    }

    /// After how long a caller loads without a lease, less the tick that has begun.
    pub(crate) fn loads_alone_after(&self) -> Option<Millis> {
        self.loads_after_wait.then_some(LONGEST_LEASE_WAIT - 1)
    }

    /// The cache of a process.
    pub(crate) fn cache(&self, store: RedisStore) -> Cache<u64, Loaded> {
        if self.burst.is_some() {
            let builder = Cache::builder("simulated", store).ttl(TTL_OF_BURST);
            return builder.build().expect("options");
        }
        let wait = Wait::at_most(Duration::from_millis(LONGEST_LEASE_WAIT));
        let builder = Cache::builder("simulated", store)
            .ttl(Duration::from_millis(self.ttl))
            .stale_while_revalidate(Duration::from_millis(self.stale[0]))
            .stale_if_error(Duration::from_millis(self.stale[1]))
            .wait(if self.loads_after_wait { wait.then_load() } else { wait })
            .when_abandoned(match self.drops_abandoned {
                true => WhenAbandoned::Cancel,
                false => WhenAbandoned::Finish,
            })
            .load_timeout(Duration::from_millis(500));
        let builder = match self.tags_of_answers {
            true => builder.answer_tags(|(_, _, number): &Loaded| number.map(tag)),
            false => builder,
        };
        let builder = if self.refreshes_early { builder.refresh_early(1.0) } else { builder };
        builder.build().expect("options")
    }
}

/// By how much the clocks of shards differ from that of the world, in microseconds.
///
/// That of one server is set by a fault. Those of a cluster differ, by little or by much. A tag that is known only
/// from what was loaded, and has come from a node ahead, prevents commits until then.
fn clock_errors(
    topology: Topology,
    tags_of_answers: bool,
    pick: &mut impl FnMut(&[u32]) -> u32,
) -> Vec<i64> {
    let far = match tags_of_answers {
        true => [0, 0, 0, 1_000, 2_000, -2_000],
        false => [0, 0, 2_000, -400_000, 3_000_000, -90_000_000],
    };
    match topology {
        Topology::Cluster(shards) => {
            (0..shards).map(|_| far[pick(&[0, 1, 2, 3, 4, 5]) as usize]).collect()
        }
        _ => vec![0],
    }
}

/// One of so many: none.
const NONE: u32 = 1_000_000;

/// How many invalidations are kept by default.
const MOST_KEPT: u32 = 10_000;

/// How many callers there are in a burst at most.
const MOST_CALLERS: usize = 16_000;

/// How many keys, the first ones, are no part of a burst.
pub(crate) const WARM_KEYS: u64 = 32;

/// No entry ends before its burst.
const TTL_OF_BURST: Duration = Duration::from_secs(600);

/// A burst is over by then, whatever happens: no caller waits for longer by default.
pub(crate) const LONGEST_BURST: Millis = 60_000;

/// When the outbox has sent a release at the latest, where the server answers.
const LATEST_RELEASE: Millis = 110;

/// How long the cache waits for the load of another caller.
const LONGEST_LEASE_WAIT: Millis = 1_000;

/// The cache waits for a second for the load of another caller. A load takes half a second at most, and a command a quarter of one.
const LONGEST_WAIT: Millis = 6_000;
