//! Races: contenders take turns in many short rounds, so that whatever else the machine does meets
//! all of them alike.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::cpu::cpu_time;
use crate::figures::{Lap, Number, Outcome};

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    rounds: usize,
    /// How long a contender's turn is.
    turn: Duration,
}

impl Effort {
    /// A turn is shorter than what a scheduler gives a thread at a time, so that most rounds are
    /// undisturbed on a busy machine too.
    pub(crate) const FULL: Self = Self { rounds: 600, turn: Duration::from_micros(500) };

    /// Only shows that everything runs.
    pub(crate) const SMOKE: Self = Self { rounds: 1, turn: Duration::ZERO };

    pub(crate) fn is_smoke(self) -> bool {
        self.turn.is_zero()
    }

    /// Fewer and longer turns, for what needs some time to get going.
    pub(crate) fn in_long_turns(self) -> Self {
        if self.is_smoke() { self } else { Self { rounds: 40, turn: Duration::from_millis(20) } }
    }

    /// Fewer and longer still, for turns in which a program of its own is started.
    pub(crate) fn in_turns_of_programs(self) -> Self {
        if self.is_smoke() { self } else { Self { rounds: 60, turn: Duration::from_millis(100) } }
    }
}

/// Contenders that are measured together.
pub(crate) struct Race<'a> {
    section: &'static str,
    case: String,
    contenders: Vec<Contender<'a>>,
}

struct Contender<'a> {
    name: String,
    /// How many operations one time is.
    operations: usize,
    run: Box<dyn FnMut(usize) -> Took + 'a>,
    times: usize,
}

impl<'a> Race<'a> {
    pub(crate) fn new(section: &'static str, case: impl Into<String>) -> Self {
        Self { section, case: case.into(), contenders: Vec::new() }
    }

    /// Enters something that is done many times over, by a function that says how long that took.
    /// Each time is so many operations.
    pub(crate) fn enter(
        &mut self,
        name: impl Into<String>,
        operations: usize,
        run: impl FnMut(usize) -> Took + 'a,
    ) -> Number {
        let run = Box::new(run);
        self.contenders.push(Contender { name: name.into(), operations, run, times: 1 });
        Number(self.contenders.len() - 1)
    }

    /// Enters something that is done at once and on this thread.
    pub(crate) fn enter_plain<T>(
        &mut self,
        name: impl Into<String>,
        mut operation: impl FnMut() -> T + 'a,
    ) -> Number {
        self.enter(name, 1, move |times| {
            timed(|| {
                for _ in 0..times {
                    black_box(operation());
                }
            })
        })
    }

    /// Enters something that is awaited, one after the other.
    pub(crate) fn enter_async<F: Future>(
        &mut self,
        name: impl Into<String>,
        runtime: &'a Runtime,
        mut operation: impl FnMut() -> F + 'a,
    ) -> Number {
        self.enter(name, 1, move |times| {
            timed(|| {
                runtime.block_on(async {
                    for _ in 0..times {
                        black_box(operation().await);
                    }
                });
            })
        })
    }

    pub(crate) fn run(mut self, effort: Effort) -> Outcome {
        let contenders = &mut self.contenders;
        contenders.iter_mut().for_each(|contender| contender.fill(effort.turn));
        let mut laps = vec![Vec::with_capacity(effort.rounds); contenders.len()];
        for round in 0..effort.rounds {
            for turn in 0..contenders.len() {
                // Each round begins with another contender, so that none always follows the same
                // one.
                let place = (round + turn) % contenders.len();
                laps[place].push(contenders[place].turn(effort.turn));
            }
        }
        let names = self.contenders.into_iter().map(|contender| contender.name);
        Outcome::new(self.section, self.case, names.collect(), laps, effort.is_smoke())
    }
}

impl Contender<'_> {
    /// Finds out how many times fill a turn, which warms it up as well.
    fn fill(&mut self, turn: Duration) {
        loop {
            // The fastest of some: a delayed run would make all turns too short, and the overhead
            // of a turn would be measured instead of the operation.
            let probes = (0..PROBES).map(|_| (self.run)(self.times).wall);
            let took = probes.min().unwrap_or_default();
            if took >= turn / 2 {
                let wanted = self.times as f64 * turn.as_secs_f64() / took.as_secs_f64();
                self.times = (wanted as usize).max(1);
                return;
            }
            self.times *= 2;
        }
    }

    fn turn(&mut self, turn: Duration) -> Lap {
        loop {
            let took = (self.run)(self.times);
            if took.wall >= turn / 4 {
                let operations = (self.times * self.operations) as f64;
                let each = |whole: Duration| whole.as_secs_f64() * 1e9 / operations;
                let Took { wall, cpu, servers } = took;
                return Lap { wall: each(wall), cpu: each(cpu), servers: each(servers) };
            }
            self.times *= 2;
        }
    }
}

/// What something took.
#[derive(Clone, Copy)]
pub(crate) struct Took {
    wall: Duration,
    /// On all threads of this process that are still there.
    cpu: Duration,
    /// On those of the servers, where that is measured.
    servers: Duration,
}

impl Took {
    /// The same, by another clock.
    pub(crate) fn lasting(self, wall: Duration) -> Self {
        Self { wall, ..self }
    }

    /// The same, with what the servers have used of the processors.
    pub(crate) fn with_servers(self, servers: Duration) -> Self {
        Self { servers, ..self }
    }
}

pub(crate) fn timed(run: impl FnOnce()) -> Took {
    // Reading the processor time takes some time itself, so it stays outside of what is timed.
    let used = cpu_time();
    let began = Instant::now();
    run();
    let wall = began.elapsed();
    Took { wall, cpu: cpu_time().saturating_sub(used), servers: Duration::ZERO }
}

const PROBES: usize = 5;
