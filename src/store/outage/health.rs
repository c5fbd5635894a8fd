//! `PrimaryHealth`: whether the primary of a store answers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::duration::micros;
use crate::error::StoreError;
use crate::key::Key;
use crate::locked::locked;
use crate::store::StoreErrorKind;

/// When a primary has last failed, and whether it has answered since.
#[derive(Debug)]
pub(super) struct PrimaryHealth {
    born: Instant,
    /// Twice the time of the last failure, in us and counted from 1 us before `born`; and one more until the
    /// primary answers. Zero: there was none, or it was so long ago that the memory was freed.
    failed: AtomicU64,
    /// The last failure, and of which key. Held to read or to write it, never across an `.await`.
    last: Mutex<Option<(Key, StoreError)>>,
}

impl Default for PrimaryHealth {
    fn default() -> Self {
        Self { born: Instant::now(), failed: AtomicU64::new(SPOTLESS), last: Mutex::default() }
    }
}

impl PrimaryHealth {
    /// Whether there was no failure for which the memory is still in use.
    #[inline]
    pub(super) fn is_spotless(&self) -> bool {
        self.failed.load(Ordering::Acquire) == SPOTLESS
    }

    /// Notes a failure of a request for a key. Call it before the memory grants a lease because of that.
    pub(super) fn failed(&self, key: &Key, error: StoreError) {
        // A full server refuses leases only, and answers lookups.
        let is_failing = error.kind() != StoreErrorKind::Refused;
        *locked(&self.last) = Some((key.clone(), error));
        self.failed.store(self.now() * 2 + u64::from(is_failing), Ordering::Release);
    }

    /// Notes an answer. Frees the memory if there was no failure for `quiet`.
    pub(super) fn answered(&self, quiet: Duration, free: impl FnOnce()) {
        let failed = self.failed.load(Ordering::Acquire);
        let mut next = failed & !FAILING;
        if self.since(failed) > quiet {
            // First: the primary's later answers do not end what is in the memory any more.
            free();
            next = SPOTLESS;
        }
        if next != failed {
            // Unless it has failed meanwhile.
            let (order, otherwise) = (Ordering::AcqRel, Ordering::Relaxed);
            _ = self.failed.compare_exchange(failed, next, order, otherwise);
        }
    }

    /// Whether it fails, and was asked so shortly ago that it need not be asked now.
    #[inline]
    pub(super) fn is_failing(&self) -> bool {
        self.has_failed_within(ASKED_EVERY)
    }

    /// The failure of a moment ago of a request for this key, unless it has answered since. Of this key
    /// only: one lost request in a crowd says nothing about the other keys.
    pub(super) fn just_failed(&self, key: &Key) -> Option<StoreError> {
        if !self.has_failed_within(JUST) {
            return None;
        }
        let last = locked(&self.last).clone();
        last.filter(|(of, _)| of == key).map(|(_, error)| error)
    }

    #[inline]
    fn has_failed_within(&self, time: Duration) -> bool {
        let failed = self.failed.load(Ordering::Acquire);
        failed & FAILING != 0 && self.since(failed) < time
    }

    fn since(&self, failed: u64) -> Duration {
        Duration::from_micros(self.now().saturating_sub(failed / 2))
    }

    fn now(&self) -> u64 {
        micros(self.born.elapsed()) + 1
    }
}

const SPOTLESS: u64 = 0;

const FAILING: u64 = 1;

/// How often a process whose memory has the answers asks the primary: as often as a breaker that is open
/// asks the server.
const ASKED_EVERY: Duration = Duration::from_millis(250);

/// Longer than a caller takes from its lookup to its acquire.
const JUST: Duration = Duration::from_millis(100);
