//! Marks: whether anything may have happened to a key since it was asked about.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::key::Digest;

/// Counts the changes of keys that are heard of, some keys to a counter.
///
/// A mark is what its key's counter showed when it was made, so nothing has to be kept for it. A
/// change counts for all keys of its counter: that costs the others a copy, and never the truth.
pub(super) struct Marks {
    /// Guards `epoch` and `heard_at` against other writers. Held to write them, and for nothing
    /// else.
    hearing: Mutex<Hearing>,
    /// A number for the time since nothing can have gone unheard, or `DEAF`.
    epoch: AtomicU64,
    /// When the latest question was sent that the link has answered, in ns since `born`.
    heard_at: AtomicU64,
    /// For how long after `heard_at` a mark holds, in ns.
    silence: u64,
    born: Instant,
    /// As many as a power of two.
    changes: Box<[AtomicU64]>,
}

/// Over which link changes are heard, and how many epochs there were.
#[derive(Debug, Default)]
struct Hearing {
    link: Option<u64>,
    epochs: u64,
}

/// A moment in the life of a key, as far as this process hears of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    epoch: u64,
    changes: u64,
    group: u32,
}

/// The epoch in which nothing is heard.
const DEAF: u64 = 0;

impl Marks {
    /// Marks with at least so many counters, which hold only while the link is silent for less
    /// than `silence`.
    pub(super) fn new(counters: usize, silence: Duration) -> Self {
        let changes = (0..counters.next_power_of_two()).map(|_| AtomicU64::new(0)).collect();
        Self {
            hearing: Mutex::default(),
            epoch: AtomicU64::new(DEAF),
            heard_at: AtomicU64::new(0),
            silence: nanos(silence),
            born: Instant::now(),
            changes,
        }
    }

    /// Marks a key, if its changes are heard of. To be done before a question is sent: whatever
    /// happens after the answer was made is then heard of after the mark was.
    pub(super) fn mark(&self, digest: &Digest) -> Option<Mark> {
        let epoch = self.epoch();
        let group = group(digest);
        let changes = self.counter(group).load(Ordering::Acquire);
        (epoch != DEAF).then_some(Mark { epoch, changes, group })
    }

    /// Whether nothing has happened since, as far as is heard.
    #[inline]
    pub(super) fn holds(&self, mark: &Mark) -> bool {
        mark.epoch == self.epoch()
            && mark.changes == self.counter(mark.group).load(Ordering::Acquire)
    }

    /// Whether the link has answered a question that was sent less than `silence` ago.
    ///
    /// Call it before [`holds`](Self::holds): a new link begins its epoch, and only then is noted
    /// as heard from.
    #[inline]
    pub(super) fn is_confirmed(&self, now: Instant) -> bool {
        let silent_for =
            self.since_birth(now).saturating_sub(self.heard_at.load(Ordering::Acquire));
        silent_for < self.silence
    }

    /// A link has answered a question that was sent at this moment. So it was alive after that, and
    /// whatever it told before the answer has been heard.
    pub(super) fn confirm(&self, link: u64, sent_at: Instant) {
        let sent_at = self.since_birth(sent_at);
        let hearing = self.hearing();
        if hearing.link == Some(link) && sent_at > self.heard_at.load(Ordering::Relaxed) {
            self.heard_at.store(sent_at, Ordering::Release);
        }
    }

    /// Whether nothing is heard.
    #[inline]
    pub(super) fn is_deaf(&self) -> bool {
        self.epoch() == DEAF
    }

    /// Something happened to a key.
    pub(super) fn change(&self, digest: &Digest) {
        self.counter(group(digest)).fetch_add(1, Ordering::Release);
    }

    /// Something happened, and to which keys is not known.
    pub(super) fn change_all(&self) {
        let mut hearing = self.hearing();
        if hearing.link.is_some() {
            self.begin_epoch(&mut hearing);
        }
    }

    /// From now on changes are heard over a link, unless it has broken meanwhile. The question that
    /// asked for them was sent at `sent_at`.
    pub(super) fn listen(&self, link: u64, sent_at: Instant, is_broken: impl FnOnce() -> bool) {
        let mut hearing = self.hearing();
        // Whoever breaks it says so before it comes to `deafen`, which waits for us here.
        if !is_broken() {
            hearing.link = Some(link);
            self.begin_epoch(&mut hearing);
            // The former link may have answered a later question.
            self.heard_at.store(self.since_birth(sent_at), Ordering::Release);
        }
    }

    /// Nothing comes over a link any more.
    pub(super) fn deafen(&self, link: u64) {
        let mut hearing = self.hearing();
        if hearing.link == Some(link) {
            hearing.link = None;
            self.epoch.store(DEAF, Ordering::Release);
        }
    }

    fn begin_epoch(&self, hearing: &mut Hearing) {
        hearing.epochs += 1;
        self.epoch.store(hearing.epochs, Ordering::Release);
    }

    #[inline]
    fn since_birth(&self, at: Instant) -> u64 {
        nanos(at.saturating_duration_since(self.born))
    }

    #[inline]
    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    #[inline]
    fn counter(&self, group: u32) -> &AtomicU64 {
        &self.changes[group as usize & (self.changes.len() - 1)]
    }

    fn hearing(&self) -> MutexGuard<'_, Hearing> {
        self.hearing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Enough for five centuries.
#[inline]
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Keys of one group have one counter.
fn group(digest: &Digest) -> u32 {
    let [a, b, c, d, ..] = *digest.as_bytes();
    u32::from_be_bytes([a, b, c, d])
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Marks").field("epoch", &self.epoch()).finish_non_exhaustive()
    }
}
