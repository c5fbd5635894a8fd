//! Epochs and versions: whether a key may have changed since its lookup was sent.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::duration::nanos;
use crate::key::Digest;

/// Counts the changes of keys and tags that the server reports. Several of them share a counter.
///
/// A version is a value of its key's counter, so it needs no memory here. A change invalidates the
/// copies of all keys of its counter, which is never wrong and costs a lookup each.
pub(super) struct Epochs {
    /// Guards `epoch` and `confirmed_at` against other writers. Held only to write them.
    source: Mutex<ReportSource>,
    /// The number of the current epoch, in which no report can have been lost, or `DISCONNECTED`.
    epoch: AtomicU64,
    /// When the latest answered request of the connection was sent, in ns since `born`.
    confirmed_at: AtomicU64,
    /// For how long after `confirmed_at` a version holds, in ns.
    silence: u64,
    born: Instant,
    /// One counter per group of keys. Their number is a power of two.
    changes: Box<[AtomicU64]>,
}

/// The connection that reports changes, and the number of epochs so far.
#[derive(Debug, Default)]
struct ReportSource {
    connection: Option<u64>,
    epochs: u64,
}

/// The version of a key or of a tag, as far as its changes are reported to this process.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Version {
    epoch: u64,
    changes: u64,
    group: u32,
}

/// The epoch in which no changes are reported.
const DISCONNECTED: u64 = 0;

impl Epochs {
    /// With at least this many counters. Versions hold only while the connection is silent for less
    /// than `silence`.
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

    /// The version of a key, if its changes are reported. Call it before a request is sent. Then
    /// every change after the server's reply is reported after this version was taken.
    pub(super) fn version(&self, digest: &Digest) -> Option<Version> {
        let epoch = self.epoch();
        let group = group(digest);
        let changes = self.counter(group).load(Ordering::Acquire);
        (epoch != DISCONNECTED).then_some(Version { epoch, changes, group })
    }

    /// Whether no change was reported since this version was taken.
    #[inline]
    pub(super) fn holds(&self, version: &Version) -> bool {
        version.epoch == self.epoch()
            && version.changes == self.counter(version.group).load(Ordering::Acquire)
    }

    /// Whether the connection has answered a request that was sent less than `silence` ago.
    ///
    /// Call it before [`holds`](Self::holds): a new connection begins its epoch before it is
    /// confirmed.
    #[inline]
    pub(super) fn is_confirmed(&self, now: Instant) -> bool {
        let silent_for =
            self.since_birth(now).saturating_sub(self.confirmed_at.load(Ordering::Acquire));
        silent_for < self.silence
    }

    /// A connection has answered a request that was sent at this moment. So it was alive then, and
    /// all reports from before the reply have arrived.
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

    /// A key has changed.
    pub(super) fn change(&self, digest: &Digest) {
        self.counter(group(digest)).fetch_add(1, Ordering::Release);
    }

    /// Keys have changed, and it is not known which.
    pub(super) fn change_all(&self) {
        let mut source = self.source();
        if source.connection.is_some() {
            self.begin_epoch(&mut source);
        }
    }

    /// From now on changes are reported over a connection, unless it has broken meanwhile. The
    /// request for that was sent at `sent_at`.
    pub(super) fn connect(&self, connection: u64, sent_at: Instant, is_broken: &dyn Fn() -> bool) {
        let mut source = self.source();
        // A connection is marked as broken before `disconnect` is called, and that waits for this
        // lock.
        if !is_broken() {
            source.connection = Some(connection);
            self.begin_epoch(&mut source);
            // The former connection may have answered a later request.
            self.confirmed_at.store(self.since_birth(sent_at), Ordering::Release);
        }
    }

    /// A connection reports no changes any more.
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

/// The group of a key. Keys of one group share a counter.
fn group(digest: &Digest) -> u32 {
    let [a, b, c, d, ..] = *digest.as_bytes();
    u32::from_be_bytes([a, b, c, d])
}

impl fmt::Debug for Epochs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epochs").field("epoch", &self.epoch()).finish_non_exhaustive()
    }
}
