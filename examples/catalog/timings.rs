//! How long the requests of a way took.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

/// The upper ends of the classes of a histogram: from a quarter of a millisecond to 8 s, each twice
/// the one before. What takes longer is in a class of its own.
const FIRST_CLASS_MICROS: u128 = 250;
const CLASSES: usize = 17;

/// How long the requests of a way took, and how many failed.
#[derive(Default)]
pub(crate) struct Timings(
    /// Held to count one request or to copy all.
    Mutex<Counts>,
);

#[derive(Clone, Default, Serialize)]
pub(crate) struct Counts {
    answers: u64,
    errors: u64,
    /// How many answers and errors took how long.
    latency: [u64; CLASSES],
}

impl Timings {
    /// Counts an answer, or an error.
    pub(crate) fn note(&self, took: Duration, is_ok: bool) {
        let ends = (0..CLASSES - 1).map(|class| FIRST_CLASS_MICROS << class);
        let class = ends.take_while(|end| took.as_micros() >= *end).count();
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.latency[class] += 1;
        *(if is_ok { &mut counts.answers } else { &mut counts.errors }) += 1;
    }

    pub(crate) fn counts(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_ends_where_the_next_begins() {
        for (micros, class) in [(249, 0), (250, 1), (8_191_000, 15), (9_000_000, 16)] {
            let timings = Timings::default();
            timings.note(Duration::from_micros(micros), true);
            assert_eq!(timings.0.into_inner().unwrap().latency[class], 1, "{micros}");
        }
    }
}
