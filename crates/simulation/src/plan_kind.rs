//! Kinds of plans: what a run is about.

use std::fmt;

/// What a run is about. Its seed decides, unless the run says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanKind {
    /// Faults, where servers and processes need no time.
    Faults,
    /// Faults, where servers and processes need time.
    Slow,
    /// Many cold keys at once, where servers and processes need time.
    Burst,
    /// The same, where nothing was loaded before and no server knows the scripts. No seed decides for it.
    FirstBurst,
}

impl PlanKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Faults, Self::Slow, Self::Burst, Self::FirstBurst];

    /// The kind of a seed: seeds that follow each other have kinds in fixed shares.
    pub fn of(seed: u64) -> Self {
        match seed % EACH {
            BURST => Self::Burst,
            place if place.is_multiple_of(4) => Self::Slow,
            _ => Self::Faults,
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.to_string() == name)
    }

    /// Whether it is about many keys at once.
    pub fn is_burst(self) -> bool {
        matches!(self, Self::Burst | Self::FirstBurst)
    }
}

/// The name by which the program takes it.
impl fmt::Display for PlanKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Faults => "faults",
            Self::Slow => "slow",
            Self::Burst => "burst",
            Self::FirstBurst => "first-burst",
        })
    }
}

/// One seed of so many is that of a burst, which takes as long as six others.
const EACH: u64 = 64;
const BURST: u64 = 33;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_that_follow_each_other_have_kinds_in_fixed_shares() {
        let count = |kind| (1_000..1_000 + EACH).filter(|seed| PlanKind::of(*seed) == kind).count();
        assert_eq!(PlanKind::ALL.map(count), [47, 16, 1, 0]);
    }

    #[test]
    fn each_kind_has_a_name() {
        for kind in PlanKind::ALL {
            assert_eq!(PlanKind::named(&kind.to_string()), Some(kind));
        }
    }
}
