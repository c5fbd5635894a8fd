//! The counts of each way.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use bellwether::CacheStatus;
use serde::Serialize;

/// The upper ends of the classes of a histogram: from a quarter of a millisecond to 8 s, each twice
/// the one before. What takes longer is in a class of its own.
pub(crate) const FIRST_CLASS_MICROS: u128 = 250;
const CLASSES: usize = 17;

/// How many answers took how long.
pub(crate) type Histogram = [u64; CLASSES];

/// Counts the answers of a way.
#[derive(Default)]
pub(crate) struct Meter(Mutex<Counts>);

/// Counted since the program was started.
#[derive(Clone, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) answers: u64,
    pub(crate) errors: u64,
    pub(crate) outcomes: Outcomes,
    /// How long answers and errors took.
    pub(crate) latency: Histogram,
    /// The waits of callers that were answered by another caller's load.
    pub(crate) waits: Histogram,
}

/// How answers came about: see [`CacheStatus`].
#[derive(Clone, Default, Serialize)]
pub(crate) struct Outcomes {
    hit: u64,
    stale: u64,
    collapsed: u64,
    led: u64,
    bypass: u64,
    failed: u64,
}

impl Meter {
    /// Notes an answer, or an error.
    pub(crate) fn note(&self, took: Duration, is_ok: bool) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.latency[class(took)] += 1;
        *(if is_ok { &mut counts.answers } else { &mut counts.errors }) += 1;
    }

    /// Notes how one thing that an answer is made of came about.
    pub(crate) fn note_status(&self, status: &CacheStatus) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let outcomes = &mut counts.outcomes;
        let outcome = match status {
            CacheStatus::Hit { .. } => &mut outcomes.hit,
            CacheStatus::Stale { .. } => &mut outcomes.stale,
            CacheStatus::Collapsed { .. } => &mut outcomes.collapsed,
            CacheStatus::Led { .. } => &mut outcomes.led,
            CacheStatus::Bypass(_) => &mut outcomes.bypass,
            _ => &mut outcomes.failed,
        };
        *outcome += 1;
        if let CacheStatus::Collapsed { waited, .. } = status {
            counts.waits[class(*waited)] += 1;
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn class(took: Duration) -> usize {
    let ends = (0..CLASSES - 1).map(|class| FIRST_CLASS_MICROS << class);
    ends.take_while(|end| took.as_micros() >= *end).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_ends_where_the_next_begins() {
        assert_eq!(class(Duration::from_micros(249)), 0);
        assert_eq!(class(Duration::from_micros(250)), 1);
        assert_eq!(class(Duration::from_millis(8_191)), 15);
        assert_eq!(class(Duration::from_secs(9)), 16);
    }

    #[test]
    fn a_caller_that_waited_for_another_is_counted_with_its_wait() {
        let meter = Meter::default();
        let place = bellwether::LoadLocation::Local;
        meter.note_status(&CacheStatus::Collapsed { place, waited: Duration::from_millis(20) });
        let counts = meter.counts();
        assert_eq!((counts.outcomes.collapsed, counts.waits.iter().sum::<u64>()), (1, 1));
    }
}
