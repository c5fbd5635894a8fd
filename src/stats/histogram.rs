//! Histograms: how often a value was within each of fixed bounds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often values were within each of fixed bounds, and their sum. Counts only grow: the
/// [difference](Self::since) of two snapshots is what happened in between.
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
    /// The sum of all values.
    pub sum: f64,
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

    /// No value, by these bounds.
    pub const fn none(bounds: &'static [f64; 15]) -> Self {
        Self { bounds, counts: [0; BUCKETS], sum: 0.0 }
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What came after an earlier snapshot of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.counts;
        for (count, before) in counts.iter_mut().zip(earlier.counts) {
            *count = count.saturating_sub(before);
        }
        Self { counts, sum: (self.sum - earlier.sum).max(0.0), ..*self }
    }

    /// Moves on to a later snapshot of the same histogram, and returns what came in between. A
    /// snapshot that is older than this one changes nothing: it has nothing that came after it.
    pub fn advance(&mut self, later: &Self) -> Self {
        let new = later.since(self);
        if later.count() > self.count() {
            *self = *later;
        }
        new
    }

    /// A value for each bucket that has some, and how many it stands for, to feed another
    /// histogram. Each value lies in its bucket, and all of them together add up to the
    /// [sum](Self::sum), as far as that is possible.
    pub fn samples(&self) -> impl Iterator<Item = (f64, u64)> + use<> {
        let Self { bounds, counts, .. } = *self;
        let place = self.place();
        let over = counts[BUCKETS - 1];
        let finite = move |bucket: usize| within(bounds, bucket, place);
        let of_finite: f64 = (0..BUCKETS - 1).map(|at| finite(at) * counts[at] as f64).sum();
        let above = (self.sum - of_finite) / over.max(1) as f64;
        let least = bounds[BUCKETS - 2] * (1.0 + f64::EPSILON);
        let value = move |bucket| match bucket {
            LAST => above.max(least),
            bucket => finite(bucket),
        };
        (0..BUCKETS)
            .filter(move |bucket| counts[*bucket] > 0)
            .map(move |bucket| (value(bucket), counts[bucket]))
    }

    /// Where in their buckets the samples are, from 0 to 1.
    fn place(&self) -> f64 {
        if self.counts[LAST] > 0 {
            return 0.5;
        }
        let (mut lower, mut width) = (0.0, 0.0);
        for (bucket, count) in self.counts[..LAST].iter().enumerate() {
            let begin = begin(self.bounds, bucket);
            lower += begin * *count as f64;
            width += (self.bounds[bucket] - begin) * *count as f64;
        }
        // A value at the very begin of a bucket would belong to the one before.
        if width > 0.0 { ((self.sum - lower) / width).clamp(1e-6, 1.0) } else { 1.0 }
    }
}

/// No value, by the bounds of times.
impl Default for HistogramStats {
    fn default() -> Self {
        Self::none(&Self::SECONDS)
    }
}

fn begin(bounds: &[f64; 15], bucket: usize) -> f64 {
    bucket.checked_sub(1).map_or(0.0, |before| bounds[before])
}

fn within(bounds: &[f64; 15], bucket: usize, place: f64) -> f64 {
    let begin = begin(bounds, bucket);
    (begin + place * (bounds[bucket] - begin)).min(bounds[bucket])
}

const BUCKETS: usize = 16;
const LAST: usize = BUCKETS - 1;

/// Where values are counted. Not for hits: a value costs two atomic additions.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64; 15],
    counts: [AtomicU64; BUCKETS],
    /// In units of which `scale` are one.
    sum: AtomicU64,
    scale: f64,
}

impl Histogram {
    /// A histogram of times.
    pub(crate) fn of_times() -> Self {
        Self::new(&HistogramStats::SECONDS, 1e9)
    }

    /// A histogram of numbers of callers.
    pub(crate) fn of_callers() -> Self {
        Self::new(&HistogramStats::CALLERS, 1.0)
    }

    fn new(bounds: &'static [f64; 15], scale: f64) -> Self {
        let counts = [const { AtomicU64::new(0) }; BUCKETS];
        Self { bounds, counts, sum: AtomicU64::new(0), scale }
    }

    pub(crate) fn note_time(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.note(time.as_secs_f64(), nanos);
    }

    pub(crate) fn note_callers(&self, callers: u64) {
        self.note(callers as f64, callers);
    }

    fn note(&self, value: f64, units: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(units, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> HistogramStats {
        let counts = std::array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed));
        let sum = self.sum.load(Ordering::Relaxed) as f64 / self.scale;
        HistogramStats { bounds: self.bounds, counts, sum }
    }
}

/// A histogram of times, for use outside of the layer: see [`HistogramStats`].
#[derive(Debug)]
pub struct TimeHistogram(Histogram);

impl TimeHistogram {
    /// Counts a time.
    pub fn note(&self, time: Duration) {
        self.0.note_time(time);
    }

    /// The times that were counted.
    pub fn read(&self) -> HistogramStats {
        self.0.read()
    }
}

impl Default for TimeHistogram {
    fn default() -> Self {
        Self(Histogram::of_times())
    }
}

/// A histogram of times for each event of an enum.
#[derive(Debug)]
pub(crate) struct TimeHistograms<const N: usize>([TimeHistogram; N]);

impl<const N: usize> TimeHistograms<N> {
    pub(crate) fn note(&self, event: usize, time: Duration) {
        self.0[event].note(time);
    }

    pub(crate) fn read(&self, event: usize) -> HistogramStats {
        self.0[event].read()
    }
}

impl<const N: usize> Default for TimeHistograms<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| TimeHistogram::default()))
    }
}

/// Defines a snapshot with a histogram of times for each event of an enum that
/// [`counters`](super::counters::counters) has defined.
macro_rules! time_histograms {
    (
        $(#[$of_stats:meta])*
        pub struct $Stats:ident by $Event:ident {
            $( $(#[$of_field:meta])* $field:ident: $Variant:ident, )+
        }
    ) => {
        $(#[$of_stats])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        #[non_exhaustive]
        pub struct $Stats {
            $( $(#[$of_field])* pub $field: HistogramStats, )+
        }

        impl $Stats {
            pub(crate) fn read(times: impl Fn(usize) -> HistogramStats) -> Self {
                Self { $( $field: times($Event::$Variant as usize), )+ }
            }

            /// Each histogram with the name of its field.
            pub fn by_name(
                &self,
            ) -> impl Iterator<Item = (&'static str, HistogramStats)> + use<> {
                [$( (stringify!($field), self.$field), )+].into_iter()
            }
        }
    };
}

pub(crate) use time_histograms;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(millis: &[u64]) -> HistogramStats {
        let histogram = Histogram::of_times();
        millis.iter().for_each(|millis| histogram.note_time(Duration::from_millis(*millis)));
        histogram.read()
    }

    #[test]
    fn a_value_on_a_bound_belongs_to_the_bucket_below() {
        let stats = of(&[0, 1, 2, 30_000, 30_001]);
        let filled: Vec<_> = (0..BUCKETS).filter(|bucket| stats.counts[*bucket] > 0).collect();
        assert_eq!((filled, stats.count()), (vec![0, 1, 2, 14, 15], 5));
        assert!((stats.sum - 60.004).abs() < 1e-9, "{stats:?}");
    }

    #[test]
    fn samples_fill_the_same_buckets_and_add_up_to_the_sum() {
        for values in [&[3, 4, 7, 60, 61, 900, 901][..], &[1, 10, 100, 31_000, 90_000], &[2], &[]] {
            let stats = of(values);
            let again = Histogram::of_times();
            let mut sum = 0.0;
            for (value, count) in stats.samples() {
                (0..count).for_each(|_| again.note_time(Duration::from_secs_f64(value)));
                sum += value * count as f64;
            }
            assert_eq!(again.read().counts, stats.counts, "{values:?}");
            assert!((sum - stats.sum).abs() < 1e-6, "{values:?}: {sum} of {}", stats.sum);
        }
    }

    #[test]
    fn the_difference_of_two_snapshots_is_what_came_in_between() {
        assert_eq!(of(&[1, 5, 70]).since(&of(&[5])).counts, of(&[1, 70]).counts);
        let nothing = of(&[5]).since(&of(&[5]));
        assert_eq!((nothing.count(), nothing.sum), (0, 0.0));
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
