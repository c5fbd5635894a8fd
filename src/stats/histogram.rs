//! Histograms: how often a value was within each of fixed bounds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::duration::nanos;

/// How often values were within each of fixed bounds, and their sums. Counts only grow: the
/// [difference](Self::advance) of two snapshots is what happened in between.
///
/// Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct HistogramStats {
    /// The upper bounds of the buckets, which belong to them, in ascending order.
    pub bounds: &'static [f64; 15],
    /// How many values there were in each bucket: above the bound before it, and not above its own.
    /// The last bucket has the values above all bounds.
    pub counts: [u64; 16],
    /// The sum of the values in each bucket.
    pub sums: [f64; 16],
}

impl HistogramStats {
    /// The bounds of times, in seconds: from half a millisecond, the fastest round trip, to half a
    /// minute, the default limit of a load.
    pub const SECONDS: [f64; 15] = [
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    ];

    /// The bounds of numbers of callers: up to 10,000, the default limit of a flight.
    pub const CALLERS: [f64; 15] = [
        1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0,
        10_000.0,
    ];

    /// The bounds of ages, in seconds: from a second to a week.
    pub const AGES: [f64; 15] = [
        1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 10_800.0, 21_600.0, 43_200.0,
        86_400.0, 259_200.0, 604_800.0,
    ];

    /// No value, by these bounds.
    pub const fn none(bounds: &'static [f64; 15]) -> Self {
        Self { bounds, counts: [0; BUCKETS], sums: [0.0; BUCKETS] }
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all values.
    pub fn sum(&self) -> f64 {
        self.sums.iter().sum()
    }

    /// Moves on to a later snapshot of the same histogram, and returns what came in between. A
    /// snapshot that is older than this one changes nothing: it has nothing that came after it.
    pub fn advance(&mut self, later: &Self) -> Self {
        let mut new = *later;
        for bucket in 0..BUCKETS {
            new.counts[bucket] = later.counts[bucket].saturating_sub(self.counts[bucket]);
            new.sums[bucket] = (later.sums[bucket] - self.sums[bucket]).max(0.0);
        }
        if later.count() > self.count() {
            *self = *later;
        }
        new
    }

    /// A value for each bucket that has some, and how many it stands for, to feed another
    /// histogram. Each value lies in its bucket, and all of them together add up to the
    /// [sum](Self::sum).
    pub fn samples(&self) -> impl Iterator<Item = (f64, u64)> + use<> {
        let Self { bounds, counts, sums } = *self;
        let filled = (0..BUCKETS).filter(move |bucket| counts[*bucket] > 0);
        filled.map(move |bucket| {
            let below = bucket.checked_sub(1).map_or(0.0, |before| bounds[before]);
            let most = bounds.get(bucket).copied().unwrap_or(f64::MAX);
            // The sum may lack a value that was counted while the snapshot was taken.
            let mean = (sums[bucket] / counts[bucket] as f64).clamp(below.next_up(), most);
            (mean, counts[bucket])
        })
    }
}

/// No value, by the bounds of times.
impl Default for HistogramStats {
    fn default() -> Self {
        Self::none(&Self::SECONDS)
    }
}

const BUCKETS: usize = 16;

/// Where values are counted: times, unless it is one of callers. Not for hits: a value
/// costs two atomic additions.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64; 15],
    counts: [AtomicU64; BUCKETS],
    /// In units of which `scale` are one.
    sums: [AtomicU64; BUCKETS],
    scale: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64; 15], scale: f64) -> Self {
        let [counts, sums] = [(); 2].map(|()| [const { AtomicU64::new(0) }; BUCKETS]);
        Self { bounds, counts, sums, scale }
    }

    /// A histogram of numbers of callers.
    pub(crate) fn of_callers() -> Self {
        Self::new(&HistogramStats::CALLERS, 1.0)
    }

    /// A histogram of ages.
    pub(crate) fn of_ages() -> Self {
        Self::new(&HistogramStats::AGES, 1e9)
    }

    /// Counts a time.
    pub fn note(&self, time: Duration) {
        self.note_units(nanos(time));
    }

    /// Counts a value.
    pub(crate) fn note_units(&self, units: u64) {
        let value = units as f64 / self.scale;
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sums[bucket].fetch_add(units, Ordering::Relaxed);
    }

    /// The values that were counted.
    pub fn read(&self) -> HistogramStats {
        let read = |counters: &[AtomicU64; BUCKETS]| {
            counters.each_ref().map(|counter| counter.load(Ordering::Relaxed))
        };
        let sums = read(&self.sums).map(|units| units as f64 / self.scale);
        HistogramStats { bounds: self.bounds, counts: read(&self.counts), sums }
    }
}

/// A histogram of times.
impl Default for Histogram {
    fn default() -> Self {
        Self::new(&HistogramStats::SECONDS, 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(millis: &[u64]) -> HistogramStats {
        let histogram = Histogram::default();
        millis.iter().for_each(|millis| histogram.note(Duration::from_millis(*millis)));
        histogram.read()
    }

    #[test]
    fn a_value_on_a_bound_belongs_to_the_bucket_below() {
        let stats = of(&[0, 1, 2, 30_000, 30_001]);
        let filled: Vec<_> = (0..BUCKETS).filter(|bucket| stats.counts[*bucket] > 0).collect();
        assert_eq!((filled, stats.count()), (vec![0, 1, 2, 14, 15], 5));
        assert!((stats.sum() - 60.004).abs() < 1e-9, "{stats:?}");
    }

    #[test]
    fn samples_fill_the_same_buckets_and_add_up_to_the_sum() {
        for values in [&[3, 4, 7, 60, 61, 900, 901][..], &[1, 10, 100, 31_000, 90_000], &[2], &[]] {
            let stats = of(values);
            let again = Histogram::default();
            let mut sum = 0.0;
            for (value, count) in stats.samples() {
                (0..count).for_each(|_| again.note(Duration::from_secs_f64(value)));
                sum += value * count as f64;
            }
            assert_eq!(again.read().counts, stats.counts, "{values:?}");
            assert!((sum - stats.sum()).abs() < 1e-6, "{values:?}: {sum} of {}", stats.sum());
        }
    }

    #[test]
    fn the_difference_of_two_snapshots_is_what_came_in_between() {
        assert_eq!(of(&[5]).advance(&of(&[1, 5, 70])).counts, of(&[1, 70]).counts);
        let nothing = of(&[5]).advance(&of(&[5]));
        assert_eq!((nothing.count(), nothing.sum()), (0, 0.0));
    }

    #[test]
    fn a_snapshot_that_advances_gives_each_value_once() {
        let mut last = HistogramStats::default();
        assert_eq!(last.advance(&of(&[1, 70])), of(&[1, 70]));
        assert_eq!(last.advance(&of(&[1])).count(), 0);
        assert_eq!(last.advance(&of(&[1, 5, 70])).counts, of(&[5]).counts);
        assert_eq!(last, of(&[1, 5, 70]));
    }
}
