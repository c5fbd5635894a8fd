//! Campaigns: runs from many seeds, on all processors.

use std::fmt;
use std::sync::Mutex;
use std::thread;

use crate::locked;
use crate::run::{Run, RunOutcome};
use crate::world::simulate;

/// The sum of runs.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// How many seeds have run.
    pub seeds: u64,
    /// What has happened in all of them. The violations say the seed.
    pub total: RunOutcome,
    /// The first seed that was found to break a promise.
    pub broken_by: Option<u64>,
    /// What the runs have listed.
    pub lines: Vec<String>,
}

impl Campaign {
    /// Runs one seed after the other, while `goes_on` says so of the violations and the number of runs that
    /// were begun.
    pub fn run(first: &Run, goes_on: impl Fn(&RunOutcome, u64) -> bool + Sync) -> Self {
        let state = Mutex::new((0, Self::default()));
        let work = || {
            loop {
                let mut locked_state = locked(&state);
                let (begun, campaign) = &mut *locked_state;
                if !goes_on(&campaign.total, *begun) {
                    return;
                }
                let seed = first.seed.wrapping_add(*begun);
                *begun += 1;
                drop(locked_state);
                let outcome = simulate(&Run { seed, ..first.clone() });
                locked(&state).1.add(seed, outcome);
            }
        };
        thread::scope(|scope| {
            let workers = thread::available_parallelism().map_or(1, usize::from);
            (0..workers).for_each(|_| drop(scope.spawn(work)));
        });
        state.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).1
    }

    fn add(&mut self, seed: u64, outcome: RunOutcome) {
        let total = &mut self.total;
        self.seeds += 1;
        total.operations += outcome.operations;
        total.loads += outcome.loads;
        total.commands += outcome.commands;
        total.millis += outcome.millis;
        for (kind, count) in outcome.faults {
            *total.faults.entry(kind).or_default() += count;
        }
        if !outcome.violations.is_empty() {
            self.broken_by.get_or_insert(seed);
        }
        let violations = outcome.violations.into_iter().map(|it| format!("seed {seed}, {it}"));
        total.violations.extend(violations);
        self.lines.extend(outcome.lines);
    }
}

impl fmt::Display for Campaign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunOutcome { operations, loads, commands, millis, faults, violations, .. } =
            &self.total;
        for (kind, count) in faults {
            writeln!(f, "{count:>9} x {kind}")?;
        }
        let hours = *millis as f64 / 3_600_000.0;
        writeln!(
            f,
            "{} seeds, {hours:.1} simulated hours, {loads} loads, {commands} commands",
            self.seeds
        )?;
        write!(f, "{} violations of {operations} operations", violations.len())
    }
}
