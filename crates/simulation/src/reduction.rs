//! Reductions: what of a run is left out.

use std::collections::BTreeSet;
use std::fmt;

use crate::plan::RunPlan;

/// What of a run is left out. Its default is nothing.
#[derive(Clone, Debug, Default)]
pub struct Reduction {
    /// The numbers of the operations and of the faults that are kept. None keeps all.
    pub kept: [Option<BTreeSet<u64>>; 2],
    /// The names of `SIMPLIFICATIONS`.
    pub simpler: BTreeSet<&'static str>,
}

/// The places in [`Reduction::kept`].
pub(crate) const OPERATIONS: usize = 0;
pub(crate) const FAULTS: usize = 1;

type Simplify = fn(&mut RunPlan);

/// How a plan becomes simpler.
pub(crate) const SIMPLIFICATIONS: [(&str, Simplify); 8] = [
    ("one-process", |plan| plan.near.truncate(1)),
    ("two-processes", |plan| plan.near.truncate(2)),
    ("no-copies", |plan| plan.near.fill(false)),
    ("one-key", |plan| (plan.keys, plan.tags) = (1, plan.tags.min(1))),
    ("no-tags", |plan| plan.tags = 0),
    ("no-stale", |plan| plan.stale = [0; 2]),
    ("no-early-refresh", |plan| plan.refreshes_early = false),
    ("no-failures", |plan| plan.failures = None),
];

impl Reduction {
    /// The names by which a run can be made simpler.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SIMPLIFICATIONS.iter().map(|(name, _)| *name)
    }

    pub(crate) fn simplify(&self, plan: &mut RunPlan) {
        for (name, simplify) in SIMPLIFICATIONS {
            if self.simpler.contains(name) {
                simplify(plan);
            }
        }
    }

    pub(crate) fn keeps(&self, kind: usize, number: u64) -> bool {
        self.kept[kind].as_ref().is_none_or(|kept| kept.contains(&number))
    }
}

/// The options by which the program repeats it.
impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kept, option) in self.kept.iter().zip(["keep-operations", "keep-faults"]) {
            if let Some(kept) = kept {
                let numbers: Vec<_> = kept.iter().map(u64::to_string).collect();
                let numbers = if kept.is_empty() { "none".into() } else { numbers.join(",") };
                write!(f, " --{option} {numbers}")?;
            }
        }
        if !self.simpler.is_empty() {
            write!(f, " --simpler {}", Vec::from_iter(self.simpler.iter().copied()).join(","))?;
        }
        Ok(())
    }
}
