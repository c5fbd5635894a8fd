//! How the callers of a storm fared.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::answer::{Answer, How};

/// How the callers of a storm fared.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Fared {
    /// How long each call took, in microseconds.
    pub(crate) took: Vec<u64>,
    pub(crate) failed: u64,
    pub(crate) stale: u64,
    pub(crate) hits: u64,
    /// One of the errors.
    pub(crate) error: Option<String>,
}

impl Fared {
    pub(crate) fn count(&mut self, answer: &Answer, took: Duration) {
        self.took.push(took.as_micros() as u64);
        match (&answer.version, answer.how) {
            (Err(error), _) => {
                self.failed += 1;
                self.error.get_or_insert_with(|| error.clone());
            }
            (_, How::Stale) => self.stale += 1,
            (_, How::Hit) => self.hits += 1,
            _ => {}
        }
    }

    /// All of them together.
    pub(crate) fn all(fared: impl IntoIterator<Item = Self>) -> Self {
        fared.into_iter().fold(Self::default(), |mut all, one| {
            all.took.extend(one.took);
            all.failed += one.failed;
            all.stale += one.stale;
            all.hits += one.hits;
            all.error = all.error.or(one.error);
            all
        })
    }

    /// How long a call took that was slower than so many of a thousand.
    pub(crate) fn slower_than(&self, of_thousand: usize) -> Duration {
        let mut took = self.took.clone();
        took.sort_unstable();
        let at = (took.len() * of_thousand / 1000).min(took.len().saturating_sub(1));
        Duration::from_micros(took.get(at).copied().unwrap_or_default())
    }

    pub(crate) fn calls(&self) -> usize {
        self.took.len()
    }

    pub(crate) fn summary(&self) -> String {
        let [p50, p99, most] = [500, 990, 1000].map(|of| self.slower_than(of));
        let Self { failed, stale, hits, error, .. } = self;
        let calls = self.calls();
        format!(
            "{calls} calls, {failed} failed, {stale} stale, {hits} hits, took p50 {p50:?}, \
             p99 {p99:?}, at most {most:?} ({error:?})"
        )
    }
}
