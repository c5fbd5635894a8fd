//! Bursts: all processes ask for the same cold keys at once, and nothing fails.

use std::collections::BTreeMap;
use std::fmt;

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use crate::host::Millis;

/// Many cold keys at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    /// How long each load takes.
    pub(crate) load: Millis,
    /// Within which time the processes begin.
    pub(crate) spread: Millis,
    /// Whether each process asks for all keys by one call.
    pub(crate) is_batch: bool,
    /// Whether processes have loaded other keys before, so that servers know the scripts.
    pub(crate) is_warm: bool,
    pub(crate) beside: BurstTrouble,
}

/// Why processes do not run all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BurstTrouble {
    None,
    /// Each is stopped now and then, for a second at most.
    Stops,
    /// Each runs for a fifth of the time.
    Quotas,
}

/// What a burst has come to.
#[derive(Clone, Debug, Default)]
pub(crate) struct BurstRecord {
    pub(crate) loads: u64,
    pub(crate) errors: BTreeMap<String, u64>,
}

/// What counts of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BurstFigures {
    pub(crate) processes: usize,
    pub(crate) keys: u64,
    pub(crate) loads: u64,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) outages: u64,
    pub(crate) took: Millis,
}

impl Burst {
    pub(crate) fn new(random: &mut SmallRng, is_warm: bool) -> Self {
        let mut pick = |options: &[Millis]| *options.choose(random).expect("one");
        Self {
            load: pick(&[0, 50, 200, 1_000]),
            spread: pick(&[0, 0, 20]),
            is_batch: pick(&[0, 0, 0, 1]) == 1,
            is_warm,
            beside: match pick(&[0, 0, 1, 2]) {
                0 => BurstTrouble::None,
                1 => BurstTrouble::Stops,
                _ => BurstTrouble::Quotas,
            },
        }
    }

    /// For how long a process is stopped now. None if it is not.
    pub(crate) fn draw_stop(&self, random: &mut SmallRng) -> Option<Millis> {
        let stops = self.beside == BurstTrouble::Stops && random.random_ratio(1, 1_000);
        stops.then(|| random.random_range(100..=1_000))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.beside {
            BurstTrouble::None => "burst of cold keys",
            BurstTrouble::Stops => "burst of cold keys, of processes that stop",
            BurstTrouble::Quotas => "burst of cold keys, of processes with quotas",
        }
    }
}

impl BurstFigures {
    /// Whether each key was loaded once, and nothing has failed. The first term of a lease is longer than the
    /// longest stop of a process, and the next renewal, so that none lapses.
    pub(crate) fn is_kept(&self) -> bool {
        let Self { keys, loads, errors, outages, .. } = self;
        loads == keys && errors.is_empty() && *outages == 0
    }
}

impl fmt::Display for BurstFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processes, keys, loads, errors, outages, took } = self;
        let failed: u64 = errors.values().sum();
        write!(
            f,
            "{processes} processes x {keys} cold keys: {loads} loads, {failed} errors, {outages} outages, {took} ms"
        )?;
        errors.iter().try_for_each(|(error, count)| write!(f, ", {count} x {error}"))
    }
}
