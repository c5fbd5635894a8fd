//! Epochs and versions: whether anything may have happened to a key since it was asked about.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::duration::nanos;
use crate::key::Digest;

/// Counts the changes of keys that the server reports, some keys to a counter.
///
/// A version is what its key's counter showed when it was made, so nothing has to be kept for it. A
/// change counts for all keys of its counter: that costs the others a copy, and never the truth.
pub(super) struct Epochs {
    /// Guards `epoch` and `confirmed_at` against other writers. Held to write them, and for nothing
    /// else.
    source: Mutex<ReportSource>,
    /// A number for the time since no report can have been lost, or `DISCONNECTED`.
    epoch: AtomicU64,
    /// When the latest request was sent that the connection has answered, in ns since `born`.
    confirmed_at: AtomicU64,
    /// For how long after `confirmed_at` a version holds, in ns.
    silence: u64,
    born: Instant,
    /// As many as a power of two.
    changes: Box<[AtomicU64]>,
}

/// Over which connection changes are reported, and how many epochs there were.
#[derive(Debug, Default)]
struct ReportSource {
    connection: Option<u64>,
    epochs: u64,
}

/// A moment in the life of a key, as far as its changes are reported to this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    epoch: u64,
    changes: u64,
    group: u32,
}

/// The epoch in which nothing is reported.
const DISCONNECTED: u64 = 0;

impl Epochs {
    /// With at least so many counters. Versions hold only while the connection is silent for less than
    /// `silence`.
    pub(super) fn new(counters: usize, silence: Duration) -> Self {
        let changes = (0..counters.next_power_of_two()).map(|_| AtomicU64::new(0)).collect();
        Self {
            source: Mutex::default(),
            epoch: AtomicU64::new(DISCONNECTED),
            confirmed_at: AtomicU64::new(0),
            silence: nanos(silence),
            born: Instant::now(),
            changes,
        }
    }

    /// The version of a key, if its changes are reported. To be taken before a request is sent: what
    /// happens after the answer was made is then reported after the version was taken.
    pub(super) fn version(&self, digest: &Digest) -> Option<Version> {
        let epoch = self.epoch();
        let group = group(digest);
        let changes = self.counter(group).load(Ordering::Acquire);
        (epoch != DISCONNECTED).then_some(Version { epoch, changes, group })
    }

    /// Whether no change has been reported since.
    #[inline]
    pub(super) fn holds(&self, version: &Version) -> bool {
        version.epoch == self.epoch()
            && version.changes == self.counter(version.group).load(Ordering::Acquire)
    }

    /// Whether the connection has answered a request that was sent less than `silence` ago.
    ///
    /// Call it before [`holds`](Self::holds): a new connection begins its epoch, and only then is
    /// confirmed.
    #[inline]
    pub(super) fn is_confirmed(&self, now: Instant) -> bool {
        let silent_for =
            self.since_birth(now).saturating_sub(self.confirmed_at.load(Ordering::Acquire));
        silent_for < self.silence
    }

    /// A connection has answered a request that was sent at this moment. So it was alive after that,
    /// and every report from before the answer has arrived.
    pub(super) fn confirm(&self, connection: u64, sent_at: Instant) {
        let sent_at = self.since_birth(sent_at);
        let source = self.source();
        if source.connection == Some(connection)
            && sent_at > self.confirmed_at.load(Ordering::Relaxed)
        {
            self.confirmed_at.store(sent_at, Ordering::Release);
        }
    }

    /// Whether changes are reported.
    #[inline]
    pub(super) fn is_connected(&self) -> bool {
        self.epoch() != DISCONNECTED
    }

    /// Something happened to a key.
    pub(super) fn change(&self, digest: &Digest) {
        self.counter(group(digest)).fetch_add(1, Ordering::Release);
    }

    /// Something happened, and to which keys is not known.
    pub(super) fn change_all(&self) {
        let mut source = self.source();
        if source.connection.is_some() {
            self.begin_epoch(&mut source);
        }
    }

    /// From now on changes are reported over a connection, unless it has broken meanwhile. The request
    /// for that was sent at `sent_at`.
    pub(super) fn connect(&self, connection: u64, sent_at: Instant, is_broken: &dyn Fn() -> bool) {
        let mut source = self.source();
        // It is marked as broken before `disconnect` is called, which waits for us here.
        if !is_broken() {
            source.connection = Some(connection);
            self.begin_epoch(&mut source);
            // The former connection may have answered a later request.
            self.confirmed_at.store(self.since_birth(sent_at), Ordering::Release);
        }
    }

    /// Nothing is reported over a connection any more.
    pub(super) fn disconnect(&self, connection: u64) {
        let mut source = self.source();
        if source.connection == Some(connection) {
            source.connection = None;
            self.epoch.store(DISCONNECTED, Ordering::Release);
        }
    }

    fn begin_epoch(&self, source: &mut ReportSource) {
        source.epochs += 1;
        self.epoch.store(source.epochs, Ordering::Release);
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

    fn source(&self) -> MutexGuard<'_, ReportSource> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keys of one group have one counter.
fn group(digest: &Digest) -> u32 {
    let [a, b, c, d, ..] = *digest.as_bytes();
    u32::from_be_bytes([a, b, c, d])
}

impl fmt::Debug for Epochs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epochs").field("epoch", &self.epoch()).finish_non_exhaustive()
    }
}
