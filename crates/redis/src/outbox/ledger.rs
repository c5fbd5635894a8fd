//! The ledger of the outbox: the commands that a server may not have executed, and the last
//! invalidations that it has acknowledged. It sends nothing.
//!
//! # Leases
//! One command takes a lease, and another one gives it up. If the reply to either is lost, the lease
//! may still be there, and other processes wait for it. So its claim is released as soon as the server
//! answers again, and not only by the next operation on the same key: there may be none.
//!
//! # Invalidations
//! What has failed is repeated until the server has executed it. Meanwhile:
//!
//! 1. No operation of this process reads a key or a tag with a pending invalidation. It repeats the
//!    invalidation first, or fails as that does. So nothing that was invalidated is served, not
//!    even when the server answers again.
//! 2. A commit does the same. So a load that began before the invalidation stores nothing, and
//!    waiters that joined it later do not get its value.
//! 3. Near copies end when an invalidation is kept. A read takes their versions before it looks for
//!    one, so none is made of what is older.
//! 4. An invalidation that is repeated late removes a value that was stored in between. That costs
//!    a load. It never brings an older value back.
//!
//! # What a failover may have lost
//! The last acknowledged invalidations are remembered. When a connection breaks or a slot gets
//! another owner, the server may be another one, or the same one without its last writes. So the
//! invalidations from shortly before are kept again. That happens before the first request to that
//! server. A read that was on its way to it is repeated: [`reassertions`](Ledger::reassertions) tells
//! it to. An acknowledgement that comes after a loss may be one of the former server, so it counts as one
//! from before.
//!
//! # When there are too many
//! The tables are bounded. A lease that does not fit lapses by itself. An invalidation that does not fit
//! is not known by name any more. So all entries count as none whose load began before that moment:
//! those with a lower [fence](Ledger::floor). Other processes do not learn of it.
//!
//! # Messages
//! A commit tells the processes that wait for its lease, with the entry if that is short. Its flight
//! judges the entry by what the store has [said of the lease](bellwether::store::OtherLease). Here it is
//! read like one of a lookup: damaged bytes, an entry whose life may be over by the server's time, and one
//! from before dropped invalidations count as none, and the message is a hint only.
//!
//! Nothing is read over an invalidation that is re-asserted: when that begins, all watches are told, and
//! a watch gives no entry after another change. One that has failed and is kept needs no more. The acquire
//! that was told of the lease has repeated it before, if it had failed by then.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::envelope;
use crate::near::Near;
use crate::stats::ReplayStats;
use bellwether::adapter::{locked, warn_throttled};
use bellwether::store::{Claim, Digest, Entry, Token, Watchers, Withdrawal};
use bellwether_redis_client::{ServerEvent, ServerObserver, ServerTime};

/// A command that a server may not have executed.
#[derive(Debug)]
pub(crate) enum OutboxItem<'a> {
    /// The release of a lease that this claim may hold.
    Release(&'a Claim),
    /// An invalidation.
    Withdrawal(WithdrawnDigest, Withdrawal),
}

/// What is invalidated, by its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "nothing else can be invalidated")]
pub enum WithdrawnDigest {
    /// A key.
    Key(Digest),
    /// A tag.
    Tag(Digest),
}

/// What became of an invalidation that was filed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// It is repeated.
    Kept,
    /// It is one too many. In this process, all entries from before count as none.
    Dropped,
    /// The options say that none is kept.
    Off,
}

/// Which invalidations a store repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeepingRules {
    /// How many are kept at most.
    pub(crate) most: usize,
    /// From how long before a loss acknowledged ones are repeated.
    pub(crate) window: Duration,
}

impl Default for KeepingRules {
    fn default() -> Self {
        Self { most: 10_000, window: Duration::from_secs(10) }
    }
}

/// An invalidation that is repeated, or was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingWithdrawal {
    change: Withdrawal,
    /// When it was called, or acknowledged.
    at: Instant,
    was_acknowledged: bool,
    /// Grows with each invalidation that is kept.
    number: u64,
}

/// A claim that may hold a lease.
#[derive(Clone, Debug)]
struct KeptClaim {
    claim: Claim,
    /// Until then, the server may still execute the command whose reply was lost.
    settled_at: Instant,
}

#[derive(Debug, Default)]
struct LedgerTable {
    changes: HashMap<WithdrawnDigest, PendingWithdrawal>,
    /// The last invalidations that were acknowledged, in the order of that.
    recent: VecDeque<(WithdrawnDigest, PendingWithdrawal)>,
    claims: HashMap<Token, KeptClaim>,
    /// How often servers may have lost something.
    losses: u64,
    stats: ReplayStats,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    rules: KeepingRules,
    /// How long a command can be under way after it was sent.
    timeout: Duration,
    /// The name of the store in log messages.
    pub(super) store: Arc<str>,
    near: Option<Arc<Near>>,
    /// Told when invalidations are re-asserted.
    watchers: Watchers,
    /// Notified when something is to be sent.
    pub(super) filed: Notify,
    /// Whether something is to be sent. Otherwise operations take no lock.
    is_busy: AtomicBool,
    reassertions: AtomicU64,
    floor: AtomicU64,
    /// Held for a few operations, never across an `.await`.
    table: Mutex<LedgerTable>,
}

impl WithdrawnDigest {
    pub(crate) fn digest(&self) -> &Digest {
        let (Self::Key(digest) | Self::Tag(digest)) = self;
        digest
    }
}

/// Two changes as one. An expiry of a tag within the time of another one makes the entries from
/// before stale at once.
pub(crate) fn merged(one: Withdrawal, other: Withdrawal) -> Withdrawal {
    match (one, other) {
        (Withdrawal::Expire { .. }, Withdrawal::Expire { .. }) => Withdrawal::EXPIRE,
        _ => Withdrawal::Invalidate,
    }
}

impl PendingWithdrawal {
    /// What is left to do. Entries that should have become stale by now do so at once.
    pub(crate) fn change(&self) -> Withdrawal {
        match self.change {
            Withdrawal::Invalidate => Withdrawal::Invalidate,
            Withdrawal::Expire { over } => {
                Withdrawal::Expire { over: over.saturating_sub(self.at.elapsed()) }
            }
        }
    }
}

impl Ledger {
    /// An empty one, with the time that an operation waits for its reply.
    pub(crate) fn new(
        rules: KeepingRules,
        timeout: Duration,
        store: Arc<str>,
        near: Option<Arc<Near>>,
        watchers: Watchers,
    ) -> Self {
        Self { rules, timeout, store, near, watchers, ..Self::default() }
    }

    /// Whether nothing is to be sent, and so nothing is to be done before a read.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        !self.is_busy.load(Ordering::Acquire)
    }

    /// How often invalidations were kept that the server had acknowledged. If that changes during a
    /// read, the read may have missed one of them.
    pub(crate) fn reassertions(&self) -> u64 {
        self.reassertions.load(Ordering::Acquire)
    }

    /// Entries with a lower fence count as none. [`UNKNOWN`] if an invalidation was dropped, and the
    /// server's time of that is not known yet.
    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }

    /// Whether the floor has to be [raised](Self::raise_floor).
    pub(crate) fn is_floor_due(&self) -> bool {
        self.floor() == UNKNOWN
    }

    /// Raises the floor, if that is due, to a time of the server that is not before now. If that time is
    /// not known, nothing is read until a later call: no fence is as high as the floor.
    pub(super) fn raise_floor(&self, now: impl FnOnce() -> Option<u64>) {
        if !self.is_floor_due() {
            return;
        }
        let dropped = locked(&self.table).stats.dropped;
        let Some(now) = now() else { return };
        self.change(|table| {
            // Another one may have been dropped after the time was read.
            if table.stats.dropped == dropped {
                self.floor.store(now, Ordering::Release);
            }
        });
    }

    /// Files what may have to be sent, and tells the task that sends it. Says what became of an
    /// invalidation.
    pub(super) fn file(&self, item: OutboxItem<'_>) -> Keeping {
        let now = Instant::now();
        let keeping = match item {
            OutboxItem::Release(claim) => {
                self.add_claim(claim.clone(), now);
                Keeping::Off
            }
            OutboxItem::Withdrawal(target, change) => self.add_pending(target, change, now),
        };
        self.filed.notify_one();
        keeping
    }

    fn add_claim(&self, claim: Claim, now: Instant) {
        let (token, settled_at) = (claim.token(), now + self.timeout);
        self.change(|table| {
            if table.claims.len() < MOST_CLAIMS || table.claims.contains_key(&token) {
                table.claims.insert(token, KeptClaim { claim, settled_at });
            }
        });
    }

    fn add_pending(&self, target: WithdrawnDigest, change: Withdrawal, now: Instant) -> Keeping {
        if self.rules.most == 0 {
            return Keeping::Off;
        }
        let is_kept = self.change(|table| {
            let is_kept = table.keep(target, change, now, false, self.rules.most);
            match is_kept {
                true => table.stats.kept += 1,
                false => self.drop_one(table),
            }
            is_kept
        });
        if !is_kept {
            return Keeping::Dropped;
        }
        self.end_copies(&target);
        warn_throttled!(target: "bellwether::store", store = %self.store, "an invalidation has failed, and is repeated until it succeeds");
        Keeping::Kept
    }

    /// Whether anything is to be sent. Claims of long ago are removed, because their leases have lapsed.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.change(|table| {
            table.claims.retain(|_, kept| now < kept.settled_at + LONGEST);
            !table.claims.is_empty() || !table.changes.is_empty()
        })
    }

    /// The pending invalidation of a key or a tag.
    pub(crate) fn change_of(&self, target: &WithdrawnDigest) -> Option<PendingWithdrawal> {
        if self.is_quiet() { None } else { locked(&self.table).changes.get(target).copied() }
    }

    /// All pending invalidations.
    pub(super) fn changes(&self) -> Vec<(WithdrawnDigest, PendingWithdrawal)> {
        locked(&self.table).changes.iter().map(|(target, kept)| (*target, *kept)).collect()
    }

    /// All claims that may hold a lease.
    pub(super) fn claims(&self) -> Vec<Claim> {
        locked(&self.table).claims.values().map(|kept| kept.claim.clone()).collect()
    }

    /// How often servers may have lost something. For [`executed`](Self::executed).
    pub(crate) fn losses(&self) -> u64 {
        locked(&self.table).losses
    }

    /// The server has executed an invalidation, and with it the one that was `kept` before. One that was
    /// added since stays. It was sent after so many losses.
    pub(crate) fn executed(
        &self,
        target: WithdrawnDigest,
        change: Withdrawal,
        kept: Option<PendingWithdrawal>,
        losses: u64,
    ) {
        if self.rules.most == 0 {
            return;
        }
        let now = Instant::now();
        let may_be_lost = self.change(|table| {
            if !self.rules.window.is_zero() {
                // One that is repeated keeps its time. Else a connection that breaks again and again
                // would repeat it for ever.
                let at = kept.filter(|kept| kept.was_acknowledged).map_or(now, |kept| kept.at);
                let executed = PendingWithdrawal { change, at, was_acknowledged: true, number: 0 };
                let recent = &mut table.recent;
                while recent.front().is_some_and(|(_, oldest)| now - oldest.at > LONGEST)
                    || recent.len() >= self.rules.most
                {
                    recent.pop_front();
                }
                recent.push_back((target, executed));
            }
            let number = kept.map(|kept| kept.number);
            if number.is_some() && table.changes.get(&target).map(|kept| kept.number) == number {
                table.changes.remove(&target);
                table.stats.replayed += 1;
            }
            table.losses != losses
        });
        if may_be_lost {
            self.may_have_lost(now, &|digest| digest == target.digest());
        }
    }

    /// Notes that a claim asks for a lease, so it is in use and must not be released.
    pub(crate) fn takes(&self, claim: &Claim) {
        if !self.is_quiet() {
            self.change(|table| _ = table.claims.remove(&claim.token()));
        }
    }

    /// Removes claims that were released by a command that was sent at this moment. They stay if their
    /// own command may be executed after that.
    pub(super) fn released(&self, claims: &[Claim], sent_at: Instant) {
        self.change(|table| {
            for token in claims.iter().map(Claim::token) {
                if table.claims.get(&token).is_some_and(|kept| sent_at >= kept.settled_at) {
                    table.claims.remove(&token);
                }
            }
        });
    }

    /// The server of some keys and tags may have lost what it has acknowledged: see
    /// [`ServerEvent::MayHaveLost`].
    fn may_have_lost(&self, since: Instant, is_affected: &dyn Fn(&Digest) -> bool) {
        let begin = since.checked_sub(self.rules.window).unwrap_or(since);
        let lost = self.change(|table| {
            let is_lost = |(target, kept): &(WithdrawnDigest, PendingWithdrawal)| {
                kept.at >= begin && is_affected(target.digest())
            };
            let (lost, others): (VecDeque<_>, _) = table.recent.drain(..).partition(is_lost);
            table.recent = others;
            for (target, PendingWithdrawal { change, at, .. }) in &lost {
                if !table.keep(*target, *change, *at, true, self.rules.most) {
                    self.drop_one(table);
                }
            }
            table.stats.reasserted += lost.len() as u64;
            lost
        });
        if lost.is_empty() {
            return;
        }
        // One that was dropped has ended all copies.
        lost.iter().for_each(|(target, _)| self.end_copies(target));
        // After the table was changed: a read that notices this then finds them there.
        self.reassertions.fetch_add(1, Ordering::Release);
        self.watchers.tell_all();
        tracing::info!(store = %self.store, count = lost.len(), "the server may have lost the last invalidations: they are repeated");
        self.filed.notify_one();
    }

    /// Notes that an invalidation does not fit. Called with the table locked.
    fn drop_one(&self, table: &mut LedgerTable) {
        table.stats.dropped += 1;
        self.floor.store(UNKNOWN, Ordering::Release);
        self.near.as_ref().inspect(|near| near.epochs.change_everything());
        warn_throttled!(target: "bellwether::store", store = %self.store, most = self.rules.most, "too many invalidations have failed: this process reads no entries from before, and other processes may");
    }

    /// Ends the near copies of a key or a tag.
    pub(crate) fn end_copies(&self, target: &WithdrawnDigest) {
        let Some(near) = &self.near else { return };
        match target {
            WithdrawnDigest::Key(digest) => near.epochs.change(digest),
            WithdrawnDigest::Tag(tag) => near.epochs.change_tag(tag),
        }
    }

    pub(crate) fn stats(&self) -> ReplayStats {
        let table = locked(&self.table);
        ReplayStats { pending: table.changes.len() as u64, ..table.stats }
    }

    fn change<T>(&self, change: impl FnOnce(&mut LedgerTable) -> T) -> T {
        let mut table = locked(&self.table);
        let changed = change(&mut table);
        let is_empty = table.changes.is_empty() && table.claims.is_empty();
        self.is_busy.store(!is_empty || self.is_floor_due(), Ordering::Release);
        changed
    }
}

impl LedgerTable {
    /// Keeps an invalidation, together with that of the same target. Returns whether it fits.
    fn keep(
        &mut self,
        target: WithdrawnDigest,
        change: Withdrawal,
        at: Instant,
        was_acknowledged: bool,
        most: usize,
    ) -> bool {
        let former = self.changes.get(&target);
        if former.is_none() && self.changes.len() >= most {
            return false;
        }
        // Each that is kept or re-asserted has another one.
        let number = self.stats.kept + self.stats.reasserted + 1;
        let new = PendingWithdrawal { change, at, was_acknowledged, number };
        let kept = former.map_or(new, |former| PendingWithdrawal {
            change: merged(former.change, change),
            at: former.at.max(at),
            was_acknowledged: former.was_acknowledged && was_acknowledged,
            number,
        });
        self.changes.insert(target, kept);
        true
    }
}

impl ServerObserver for Ledger {
    fn note(&self, event: ServerEvent<'_>) {
        if let ServerEvent::MayHaveLost { since, is_affected } = event {
            locked(&self.table).losses += 1;
            self.may_have_lost(since, is_affected);
        }
    }

    fn read(&self, key: &Digest, sealed: &[u8], now: ServerTime) -> Option<Entry> {
        let opened = envelope::open(Bytes::copy_from_slice(sealed), key).ok()?;
        if opened.entry.fence() < self.floor() || opened.may_be_over(Some(now)) {
            return None;
        }
        let left = opened.life_left(now.latest)?;
        Some(opened.entry.with_remaining(Some(left)))
    }
}

/// The floor while the server's time is not known.
const UNKNOWN: u64 = u64::MAX;

/// The maximum number of claims: as many as there can be flights, by default.
const MOST_CLAIMS: usize = 10_000;

/// How long an acknowledged invalidation, or a claim, is remembered at most. A server that is out of reach
/// for longer is replaced by then.
const LONGEST: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests;
