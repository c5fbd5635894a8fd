//! What was done and seen, counted: it adds up over processes and sessions.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// How a read was answered, as a checker must tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// A near copy, at once.
    Near,
    /// A hit of a process with near copies that had to wait: a lookup, or a copy that was there by then.
    NearLookup,
    /// A hit in the store.
    Store,
    /// The caller's own load.
    Load,
    /// The load of another caller in this process.
    WaitedHere,
    /// The load of another process.
    WaitedElsewhere,
    /// A load without the cache.
    Bypass,
    /// A stale answer.
    Stale,
}

pub(crate) const TIERS: [Tier; 8] = [
    Tier::Near,
    Tier::NearLookup,
    Tier::Store,
    Tier::Load,
    Tier::WaitedHere,
    Tier::WaitedElsewhere,
    Tier::Bypass,
    Tier::Stale,
];

impl Tier {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Near => "near copy",
            Self::NearLookup => "hit beside near copies",
            Self::Store => "hit in Redis",
            Self::Load => "own load",
            Self::WaitedHere => "load of this process",
            Self::WaitedElsewhere => "load of another process",
            Self::Bypass => "load without the cache",
            Self::Stale => "stale answer",
        }
    }
}

/// The reads of one tier.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Reads {
    pub(crate) all: u64,
    /// Those of rows that had been invalidated before: a floor bound them.
    pub(crate) bound: u64,
    /// Those that began within 10 ms after the newest of these had returned.
    pub(crate) just_then: u64,
}

/// The counts of one task, which are added to the tally now and then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts(pub(crate) [Reads; TIERS.len()]);

/// All counts. Times are in microseconds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Tally {
    pub(crate) reads: BTreeMap<String, Reads>,
    /// What was done, by name.
    pub(crate) counts: BTreeMap<String, u64>,
    /// What was measured, by name.
    pub(crate) times: BTreeMap<String, Hist>,
}

/// How often which value was seen, to two digits.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub(crate) struct Hist(Histogram<u64>);

impl Reads {
    fn add(&mut self, other: Self) {
        self.all += other.all;
        self.bound += other.bound;
        self.just_then += other.just_then;
    }
}

impl Tally {
    pub(crate) fn add_reads(&mut self, counts: &mut Counts) {
        for (tier, reads) in TIERS.into_iter().zip(std::mem::take(counts).0) {
            if reads.all > 0 {
                self.reads.entry(tier.name().to_owned()).or_default().add(reads);
            }
        }
    }

    pub(crate) fn count(&mut self, what: &str, times: u64) {
        if let Some(count) = self.counts.get_mut(what) {
            *count += times;
        } else {
            self.counts.insert(what.to_owned(), times);
        }
    }

    pub(crate) fn measure(&mut self, what: &str, value: u64) {
        if !self.times.contains_key(what) {
            self.times.insert(what.to_owned(), Hist::default());
        }
        if let Some(times) = self.times.get_mut(what) {
            times.record(value, 1);
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (tier, reads) in &other.reads {
            self.reads.entry(tier.clone()).or_default().add(*reads);
        }
        for (what, times) in &other.counts {
            self.count(what, *times);
        }
        for (what, times) in &other.times {
            self.times.entry(what.clone()).or_default().add(times);
        }
    }

    pub(crate) fn of(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// The counts whose names begin like that, without that.
    pub(crate) fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        let named = self.counts.iter();
        named.filter_map(move |(name, count)| Some((name.strip_prefix(prefix)?, *count)))
    }

    pub(crate) fn reads_of(&self, tier: Tier) -> Reads {
        self.reads.get(tier.name()).copied().unwrap_or_default()
    }

    pub(crate) fn all_reads(&self) -> u64 {
        self.reads.values().map(|reads| reads.all).sum()
    }
}

impl Hist {
    pub(crate) fn record(&mut self, value: u64, times: u64) {
        self.0.saturating_record_n(value, times);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (value, times) in other.pairs() {
            self.record(value, times);
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn at(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }

    pub(crate) fn max(&self) -> u64 {
        self.0.max()
    }

    /// How many are at most this.
    pub(crate) fn up_to(&self, value: u64) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.count_between(0, value) }
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let recorded = self.0.iter_recorded();
        recorded.map(|it| (it.value_iterated_to(), it.count_since_last_iteration()))
    }
}

impl Default for Hist {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST, 2).expect("bounds that make sense"))
    }
}

/// More than an hour.
const LONGEST: u64 = 4_000_000_000;

impl From<Vec<(u64, u64)>> for Hist {
    fn from(pairs: Vec<(u64, u64)>) -> Self {
        let mut hist = Self::default();
        for (value, times) in pairs {
            hist.record(value, times);
        }
        hist
    }
}

impl From<Hist> for Vec<(u64, u64)> {
    fn from(hist: Hist) -> Self {
        hist.pairs().collect()
    }
}
