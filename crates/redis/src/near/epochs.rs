//! Epochs and versions: whether a key may have changed since its lookup was sent.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::sync::{AtomicU64, Mutex, Ordering, locked};
use bellwether::adapter::nanos;
use bellwether::store::{Digest, TagEpoch};
use bellwether_redis_client::{Ownership, SlotOwners};

/// Counts the changes of keys and tags that servers report. Several of them share a counter.
///
/// A version is a value of its key's counter, so it needs no memory here. A change invalidates the
/// copies of all keys of its counter, which is never wrong and costs a lookup each.
///
/// Each slot of a cluster has an owner, and only the connection to that node reports the changes of
/// the slot. A single server owns one slot, which all keys are in.
pub(crate) struct Epochs {
    nodes: Box<[NodeEpoch]>,
    owners: Arc<SlotOwners>,
    /// How many epochs have begun.
    begun: AtomicU64,
    /// For how long after `confirmed_at` a version holds, in ns.
    silence: u64,
    born: Instant,
    /// One counter per group of keys, and then one per group of tags. Both numbers are the same power of
    /// two. Tags have counters of their own, because keys change much more often.
    changes: Box<[AtomicU64]>,
    /// What was last read of a tag of each group, and at which version: a [fingerprint](Self::fingerprint).
    read_tags: Box<[AtomicU64]>,
    hasher: RandomState,
}

/// The epoch of the connection to a node.
#[derive(Debug, Default)]
struct NodeEpoch {
    /// Guards the other fields against other writers. Held only to write them.
    source: Mutex<ReportSource>,
    /// The number of the current epoch, in which no report can have been lost, or `DISCONNECTED`.
    epoch: AtomicU64,
    /// When the latest answered request of the connection was sent, in ns since `born`.
    confirmed_at: AtomicU64,
    /// Until the next connection has answered: the epoch that ended with the last one, unless any key may have
    /// changed since.
    ended: AtomicU64,
    /// When it ended, in ns since `born`.
    ended_at: AtomicU64,
}

/// The connection that reports the changes of a node.
#[derive(Debug, Default)]
struct ReportSource {
    connection: Option<u64>,
    /// Since when there is no connection, after there was one.
    lost_at: Option<Instant>,
    /// For how long there was none before, after there was one.
    disconnected: Duration,
}

impl ReportSource {
    /// For how long there is no connection now.
    fn lost_for(&self) -> Duration {
        self.lost_at.map_or(Duration::ZERO, |at| at.elapsed())
    }
}

/// The version of a key or of a tag, as far as its changes are reported to this process.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Version {
    epoch: u64,
    changes: u64,
    owner: Ownership,
    group: u32,
    slot: u16,
}

/// The epoch in which no changes are reported.
const DISCONNECTED: u64 = 0;

/// The maximum number of nodes of a cluster whose changes are followed.
const MOST_NODES: usize = 1024;

impl Epochs {
    /// With at least this many counters of keys. Versions hold only while the connection is silent for less
    /// than `silence`.
    pub(super) fn new(counters: usize, silence: Duration, owners: Arc<SlotOwners>) -> Self {
        let groups = counters.next_power_of_two();
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        let nodes = if owners.iter().count() == 1 { 1 } else { MOST_NODES };
        Self {
            nodes: (0..nodes).map(|_| NodeEpoch::default()).collect(),
            owners,
            begun: AtomicU64::new(DISCONNECTED),
            silence: nanos(silence),
            born: Instant::now(),
            changes: zeros(2 * groups),
            read_tags: zeros(groups),
            hasher: RandomState::new(),
        }
    }

    /// The version of a key, if its changes are reported. Call it before a request is sent. Then
    /// every change after the server's reply is reported after this version was taken.
    pub(crate) fn version(&self, digest: &Digest) -> Option<Version> {
        self.version_in(self.group(digest), digest)
    }

    /// The same of a tag.
    pub(crate) fn tag_version(&self, tag: &Digest) -> Option<Version> {
        self.version_in(self.group_of_tag(tag), tag)
    }

    fn version_in(&self, group: u32, digest: &Digest) -> Option<Version> {
        let slot = self.owners.slot_of(digest);
        let owner = self.owners.of(slot);
        let epoch = self.nodes.get(usize::from(owner.node()))?.epoch.load(Ordering::Acquire);
        let changes = self.counter(group).load(Ordering::Acquire);
        (epoch != DISCONNECTED).then_some(Version { epoch, changes, owner, group, slot })
    }

    /// Whether no change was reported since this version was taken.
    #[inline]
    pub(super) fn holds(&self, version: &Version) -> bool {
        version.changes == self.counter(version.group).load(Ordering::Acquire)
            && version.epoch == self.node(version).epoch.load(Ordering::Acquire)
            && version.owner == self.owners.of(version.slot)
    }

    /// Whether no change was reported since this version was taken, and none can be on its way for
    /// longer than a reply takes. `now` is [the time](Self::now).
    #[inline]
    pub(super) fn is_valid(&self, version: &Version, now: u64) -> bool {
        self.is_confirmed(version, now) && self.holds(version)
    }

    /// Until when no change was reported since this version was taken: until now, or until its connection
    /// ended. None if there was one, or if another connection has answered since.
    pub(super) fn reported_until(&self, version: &Version, now: u64) -> Option<u64> {
        let node = self.node(version);
        let until = match node.epoch.load(Ordering::Acquire) {
            epoch if epoch == version.epoch => now,
            _ if node.ended.load(Ordering::Acquire) == version.epoch => {
                node.ended_at.load(Ordering::Acquire)
            }
            _ => return None,
        };
        let is_changed = version.changes != self.counter(version.group).load(Ordering::Acquire)
            || version.owner != self.owners.of(version.slot);
        (!is_changed).then_some(until)
    }

    /// Whether a tag still has the state under which an entry was loaded, for a copy with this version of the
    /// tag. It does if no change was reported since, or if the tag was read again after that.
    pub(super) fn is_tag_valid(&self, version: &Version, loaded: &TagEpoch, now: u64) -> bool {
        self.is_valid(version, now) || self.is_valid_again(version, loaded, now)
    }

    fn is_valid_again(&self, version: &Version, loaded: &TagEpoch, now: u64) -> bool {
        let changes = self.counter(version.group).load(Ordering::Acquire);
        let latest = Version { changes, ..*version };
        self.read_tag(&latest).load(Ordering::Acquire) == self.fingerprint(&latest, loaded)
            && self.is_valid(&latest, now)
    }

    /// A tag was read at this version, and had this state. Copies with the same state are valid again.
    pub(crate) fn note_tag(&self, version: &Version, state: &TagEpoch) {
        // Without a reported change, no copy needs it.
        if version.changes > 0 {
            self.read_tag(version).store(self.fingerprint(version, state), Ordering::Release);
        }
    }

    /// 64 bits of a version and the state of a tag, so that one atomic holds both. Its key is random.
    fn fingerprint(&self, version: &Version, state: &TagEpoch) -> u64 {
        self.hasher.hash_one((version.epoch, version.changes, version.owner, state))
    }

    /// Whether the connection that reports the changes of a version has answered a request that was
    /// sent less than `silence` ago.
    ///
    /// Call it before [`holds`](Self::holds): a new connection begins its epoch before it is
    /// confirmed.
    #[inline]
    fn is_confirmed(&self, version: &Version, now: u64) -> bool {
        let confirmed_at = self.node(version).confirmed_at.load(Ordering::Acquire);
        now.saturating_sub(confirmed_at) < self.silence
    }

    /// A connection to a node has answered a request that was sent at this moment. So it was alive
    /// then, and all reports from before the reply have arrived.
    pub(super) fn confirm(&self, node: u16, connection: u64, sent_at: Instant) {
        let Some(node) = self.nodes.get(usize::from(node)) else { return };
        let sent_at = self.since_birth(sent_at);
        let source = locked(&node.source);
        if source.connection == Some(connection)
            && sent_at > node.confirmed_at.load(Ordering::Relaxed)
        {
            node.confirmed_at.store(sent_at, Ordering::Release);
            // Changes between the connections were not reported.
            node.ended.store(DISCONNECTED, Ordering::Release);
        }
    }

    /// A key has changed.
    pub(crate) fn change(&self, digest: &Digest) {
        self.counter(self.group(digest)).fetch_add(1, Ordering::Release);
    }

    /// A tag has changed, or the server does not report its changes any more until it is read again.
    pub(crate) fn change_tag(&self, tag: &Digest) {
        self.counter(self.group_of_tag(tag)).fetch_add(1, Ordering::Release);
    }

    /// Keys of a node have changed, and it is not known which.
    pub(super) fn change_all(&self, node: u16) {
        let Some(node) = self.nodes.get(usize::from(node)) else { return };
        let source = locked(&node.source);
        node.ended.store(DISCONNECTED, Ordering::Release);
        if source.connection.is_some() {
            node.epoch.store(self.begin(), Ordering::Release);
        }
    }

    /// Any key may have changed.
    pub(crate) fn change_everything(&self) {
        (0..).zip(self.nodes.iter()).for_each(|(node, _)| self.change_all(node));
    }

    /// From now on changes are reported over a connection to a node, unless it has broken meanwhile.
    /// The request for that was sent at `sent_at`.
    pub(super) fn connect(
        &self,
        node: u16,
        connection: u64,
        sent_at: Instant,
        is_broken: &dyn Fn() -> bool,
    ) {
        let Some(node) = self.nodes.get(usize::from(node)) else { return };
        let mut source = locked(&node.source);
        // A connection is marked as broken before `disconnect` is called, and that waits for this
        // lock.
        if !is_broken() {
            source.connection = Some(connection);
            let lost_for = source.lost_for();
            source.disconnected += lost_for;
            source.lost_at = None;
            node.epoch.store(self.begin(), Ordering::Release);
            // The former connection may have answered a later request.
            node.confirmed_at.store(self.since_birth(sent_at), Ordering::Release);
            drop(source);
            if !lost_for.is_zero() {
                tracing::debug!(target: "bellwether::near", ?lost_for, "changes are reported again: copies are served");
            }
        }
    }

    /// A connection to a node reports no changes any more.
    pub(super) fn disconnect(&self, node: u16, connection: u64) {
        let Some(node) = self.nodes.get(usize::from(node)) else { return };
        let mut source = locked(&node.source);
        if source.connection == Some(connection) {
            source.connection = None;
            source.lost_at = Some(Instant::now());
            // One that has not answered has no copies, and leaves those of the one before.
            if node.ended.load(Ordering::Relaxed) == DISCONNECTED {
                node.ended_at.store(self.now(), Ordering::Release);
                node.ended.store(node.epoch.load(Ordering::Relaxed), Ordering::Release);
            }
            node.epoch.store(DISCONNECTED, Ordering::Release);
            drop(source);
            tracing::debug!(target: "bellwether::near", "changes are not reported any more: copies are served as stale only");
        }
    }

    /// For how long no changes were reported, since they were for the first time. In a cluster, that
    /// of the owner of slots for which it is the longest.
    pub(super) fn disconnected_for(&self) -> Duration {
        let owners: BTreeSet<u16> = self.owners.iter().collect();
        let nodes = owners.into_iter().filter_map(|owner| self.nodes.get(usize::from(owner)));
        let disconnected = nodes.map(|node| {
            let source = locked(&node.source);
            source.disconnected + source.lost_for()
        });
        disconnected.max().unwrap_or_default()
    }

    fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The time in ns since they were made, as a hit compares times.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.since_birth(Instant::now())
    }

    #[inline]
    fn since_birth(&self, at: Instant) -> u64 {
        nanos(at.saturating_duration_since(self.born))
    }

    #[inline]
    fn node(&self, version: &Version) -> &NodeEpoch {
        &self.nodes[usize::from(version.owner.node()) & (self.nodes.len() - 1)]
    }

    #[inline]
    fn counter(&self, group: u32) -> &AtomicU64 {
        &self.changes[group as usize & (self.changes.len() - 1)]
    }

    fn read_tag(&self, version: &Version) -> &AtomicU64 {
        &self.read_tags[version.group as usize & (self.read_tags.len() - 1)]
    }

    /// The group of a key. Keys of one group share a counter.
    fn group(&self, digest: &Digest) -> u32 {
        let [a, b, c, d, ..] = *digest.as_bytes();
        u32::from_be_bytes([a, b, c, d]) & (self.read_tags.len() as u32 - 1)
    }

    fn group_of_tag(&self, tag: &Digest) -> u32 {
        self.group(tag) | self.read_tags.len() as u32
    }
}

bellwether::debug_fields! { Epochs => |it| begun = it.begun }
