//! The faults that a test has set, and the calls so far.

use std::fmt;
use std::sync::Mutex;

use bellwether::adapter::locked;
use tokio::sync::watch;

use super::fault::{CallFaults, FaultPart};
use super::healing::Healed;
use super::operation::Operation;

/// Shared by all handles of one store.
#[derive(Default)]
pub(super) struct Script {
    /// Held to count a call and to choose its faults, never across an `.await`.
    state: Mutex<ScriptState>,
    /// How often it was healed. A change releases the calls that are held up.
    healings: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct ScriptState {
    calls: [usize; Operation::ALL.len()],
    struck: usize,
    rules: Vec<Rule>,
    loses_changes: bool,
}

/// A fault, and the calls that it is for.
#[derive(Debug)]
pub(super) struct Rule {
    /// None if the rule is for any operation.
    pub(super) operation: Option<Operation>,
    pub(super) choice: Choice,
    /// How many calls of it there were since the rule was set.
    pub(super) seen: u64,
    pub(super) parts: Vec<FaultPart>,
}

/// Which calls, counted from 1.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice {
    All,
    Nth(u64),
    First(u64),
    Every(u64),
    OneIn { count: u64, seed: u64 },
}

impl Script {
    pub(super) fn say(&self, rule: Rule) {
        locked(&self.state).rules.push(rule);
    }

    pub(super) fn lose_changes(&self) {
        locked(&self.state).loses_changes = true;
    }

    pub(super) fn loses_changes(&self) -> bool {
        locked(&self.state).loses_changes
    }

    pub(super) fn heal(&self) {
        let mut state = locked(&self.state);
        state.rules.clear();
        state.loses_changes = false;
        drop(state);
        self.healings.send_modify(|healings| *healings += 1);
    }

    pub(super) fn calls(&self, operation: Operation) -> usize {
        locked(&self.state).calls[operation as usize]
    }

    pub(super) fn total_calls(&self) -> usize {
        locked(&self.state).calls.iter().sum()
    }

    pub(super) fn struck(&self) -> usize {
        locked(&self.state).struck
    }

    /// Counts a call, and gives its faults if there are any.
    pub(super) fn note(&self, operation: Operation) -> Option<CallFaults> {
        let mut state = locked(&self.state);
        state.calls[operation as usize] += 1;
        let parts: Vec<_> =
            state.rules.iter_mut().filter_map(|rule| rule.strike(operation)).flatten().collect();
        if parts.is_empty() {
            return None;
        }
        state.struck += 1;
        Some(CallFaults { parts, healed: Healed::since_now(self.healings.clone()) })
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        locked(&self.state).fmt(f)
    }
}

impl Rule {
    /// Counts a call if it is of this operation, and gives its faults.
    fn strike(&mut self, operation: Operation) -> Option<Vec<FaultPart>> {
        if self.operation.is_some_and(|of| of != operation) {
            return None;
        }
        self.seen += 1;
        self.choice.is_for(self.seen).then(|| self.parts.clone())
    }
}

impl Choice {
    fn is_for(self, call: u64) -> bool {
        match self {
            Self::All => true,
            Self::Nth(nth) => call == nth,
            Self::First(count) => call <= count,
            Self::Every(nth) => nth > 0 && call.is_multiple_of(nth),
            Self::OneIn { count, seed } => count > 0 && mixed(seed, call).is_multiple_of(count),
        }
    }
}

/// A pseudorandom number that is the same for the same call: the output function of SplitMix64
/// (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
fn mixed(seed: u64, call: u64) -> u64 {
    let mut mixed = seed.wrapping_add(call.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
