//! How long requests took, and how many failed, for each way.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

/// The upper ends of the classes of a histogram: from a quarter of a millisecond to 8 s, each twice
/// the one before. What takes longer is in a class of its own.
const FIRST_CLASS_MICROS: u128 = 250;
const CLASSES: usize = 17;

/// How many requests took how long.
#[derive(Clone, Default, Serialize)]
#[serde(transparent)]
struct Histogram([u64; CLASSES]);

/// The requests of a way, counted since the program was started.
#[derive(Clone, Default, Serialize)]
pub(crate) struct Timings {
    pub(crate) answers: u64,
    pub(crate) errors: u64,
    /// How long answers and errors took.
    latency: Histogram,
}

/// What many requests count in at once.
#[derive(Default)]
pub(crate) struct Locked<T>(
    /// Held to count one request or to copy all, never across an `.await`.
    Mutex<T>,
);

impl Timings {
    /// Counts an answer, or an error.
    pub(crate) fn note(&mut self, took: Duration, is_ok: bool) {
        self.latency.note(took);
        *(if is_ok { &mut self.answers } else { &mut self.errors }) += 1;
    }
}

impl Histogram {
    fn note(&mut self, took: Duration) {
        let ends = (0..CLASSES - 1).map(|class| FIRST_CLASS_MICROS << class);
        self.0[ends.take_while(|end| took.as_micros() >= *end).count()] += 1;
    }
}

impl<T> Locked<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_ends_where_the_next_begins() {
        for (micros, class) in [(249, 0), (250, 1), (8_191_000, 15), (9_000_000, 16)] {
            let mut histogram = Histogram::default();
            histogram.note(Duration::from_micros(micros));
            assert_eq!(histogram.0[class], 1, "{micros}");
        }
    }
}
