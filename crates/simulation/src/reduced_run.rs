//! Runs that break a promise, without what that does not need.

use std::fmt;

use crate::reduction::{FAULTS, OPERATIONS, Reduction, SIMPLIFICATIONS};
use crate::run::{Run, RunOutcome};
use crate::world::simulate;

/// A violation, and the least run that was found to have one.
#[derive(Debug)]
pub struct ReducedRun {
    /// What it is.
    pub run: Run,
    /// What happens in it, with all lines.
    pub outcome: RunOutcome,
}

impl ReducedRun {
    /// Leaves out of a run what can be left out so that it still breaks a promise, with so many runs at most.
    /// None if it breaks none, or if it is a burst, which needs all that happens in it.
    pub fn of(run: &Run, runs: u64) -> Option<Self> {
        if run.kind().is_burst() {
            return None;
        }
        let outcome = simulate(run);
        let begun = outcome.begun_at_violation?;
        // Nothing that is left out moves the rest, so what is broken is broken by then, unless a leak is found
        // at the end.
        let ends_at = outcome.violated_at.map(|at| at + 1_000);
        let mut shrinker = Shrinker { run: Run { ends_at, ..run.clone() }, runs };
        // What begins after the violation has no part in it, unless it is noticed at the end.
        for (kind, begun) in begun.into_iter().enumerate() {
            let mut candidate = shrinker.run.reduction.clone();
            candidate.kept[kind] =
                Some((0..begun).filter(|it| candidate.keeps(kind, *it)).collect());
            shrinker.attempt(candidate);
        }
        shrinker.simplify();
        shrinker.leave_out(FAULTS);
        shrinker.leave_out(OPERATIONS);
        shrinker.leave_out(FAULTS);
        shrinker.simplify();
        let run = Run { ends_at: None, ..shrinker.run };
        let outcome = simulate(&Run { shows_trace: true, ..run.clone() });
        Some(Self { run, outcome })
    }
}

/// Tries reductions, one after the other.
struct Shrinker {
    run: Run,
    /// How many runs are left. It is no time, so that a busy machine finds the same.
    runs: u64,
}

impl Shrinker {
    /// Keeps a reduction if a promise is still broken. Returns whether it is.
    fn attempt(&mut self, reduction: Reduction) -> bool {
        let Some(left) = self.runs.checked_sub(1) else { return false };
        self.runs = left;
        let run = Run { reduction, ..self.run.clone() };
        let is_less = !simulate(&run).violations.is_empty();
        if is_less {
            self.run = run;
        }
        is_less
    }

    fn simplify(&mut self) {
        for (name, _) in SIMPLIFICATIONS {
            let mut candidate = self.run.reduction.clone();
            if candidate.simpler.insert(name) {
                self.attempt(candidate);
            }
        }
    }

    /// Leaves out groups of what is kept: large ones first.
    fn leave_out(&mut self, kind: usize) {
        let Some(kept) = &self.run.reduction.kept[kind] else { return };
        let mut size = kept.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            loop {
                let kept = self.run.reduction.kept[kind].iter().flatten();
                let (kept, group): (Vec<_>, Vec<_>) = kept
                    .copied()
                    .enumerate()
                    .partition(|(place, _)| !(at..at + size).contains(place));
                if group.is_empty() {
                    break;
                }
                let mut candidate = self.run.reduction.clone();
                candidate.kept[kind] = Some(kept.into_iter().map(|(_, number)| number).collect());
                if !self.attempt(candidate) {
                    at += size;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }
}

/// The command that repeats it, and its history until the first violation.
impl fmt::Display for ReducedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { seed, kind, operations, reduction, .. } = &self.run;
        let kind = kind.map_or_else(String::new, |kind| format!(" --kind {kind}"));
        let is_of_interest = |line: &&String| !DULL.iter().any(|dull| line.contains(dull));
        for line in self.outcome.lines.iter().filter(is_of_interest) {
            writeln!(f, "{line}")?;
            if line.contains("VIOLATION") {
                break;
            }
        }
        write!(
            f,
            "cargo run --release -p bellwether-simulation -- --from {seed}{kind} --operations {operations}{reduction} --trace"
        )
    }
}

/// What every connection sends.
const DULL: [&str; 5] =
    [": PING ->", ": TIME ->", ": SCRIPT LOAD", ": CLIENT SETINFO", ": a script"];
