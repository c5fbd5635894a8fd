//! `MemoryTags`: the tags of a `MemoryStore`, and their epochs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::key::Digest;
use crate::locked::locked;
use crate::store::clock::Moment;
use crate::store::standing::{Spread, Standing, TagState};
use crate::store::{TagEpoch, Withdrawal};
use crate::tag::Tags;

/// Fences and epochs, in the order in which they are given: each is larger than all before it.
#[derive(Debug, Default)]
pub(super) struct Sequence(AtomicU64);

impl Sequence {
    /// The next number: the time in us, or one more than the last number.
    pub(super) fn next(&self, now: Moment) -> u64 {
        let after = |last: u64| now.micros.max(last.saturating_add(1));
        let last = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| Some(after(it)));
        after(last.unwrap_or_else(|last| last))
    }
}

/// The tags that entries or leases have, and those that were invalidated a moment ago.
#[derive(Debug, Default)]
pub(super) struct MemoryTags {
    /// Held for a map operation per tag, never across an `.await`, and never with a shard.
    table: Mutex<TagTable>,
}

#[derive(Debug, Default)]
struct TagTable {
    tags: HashMap<Digest, Arc<MemoryTag>>,
    /// At this count, tags without entries and leases are removed. As many were added since the
    /// last removal, so the cost per tag is constant.
    sweep_at: usize,
    /// The latest epoch of all removed tags. An absent tag has this one: it was not changed since.
    forgotten: u64,
}

/// A tag. Its entries and leases share it.
#[derive(Debug)]
pub(super) struct MemoryTag {
    /// The soft epoch, which every change replaces.
    soft: AtomicU64,
    /// Guards the rest, and writes to `soft`. Held for a few instructions.
    state: Mutex<TagState>,
}

/// A tag as it was at one moment.
#[derive(Debug)]
pub(super) struct TagView {
    pub(super) tag: Arc<MemoryTag>,
    pub(super) epoch: TagEpoch,
}

impl MemoryTags {
    /// The current epochs of tags. Absent ones are made.
    pub(super) fn view(&self, tags: &Tags) -> Vec<TagView> {
        if tags.is_empty() {
            return Vec::new();
        }
        let mut table = locked(&self.table);
        let view = |digest| table.at(digest).view(digest);
        tags.iter().copied().map(view).collect()
    }

    /// An invalidation replaces both epochs of a tag, and an expiry the soft one.
    pub(super) fn change(&self, tag: Digest, change: Withdrawal, sequence: &Sequence, now: Moment) {
        let tag = locked(&self.table).at(tag);
        let mut state = locked(&tag.state);
        let soft = sequence.next(now);
        let TagState { hard, soft: before, .. } = *state;
        let (hard, spread) = match change {
            Withdrawal::Invalidate => (soft, None),
            Withdrawal::Expire { over } => {
                (hard, (!over.is_zero()).then_some(Spread { before, over }))
            }
        };
        *state = TagState { hard, soft, expired_at: now.micros, spread };
        tag.soft.store(soft, Ordering::Release);
    }
}

impl TagTable {
    fn at(&mut self, digest: Digest) -> Arc<MemoryTag> {
        if self.tags.len() >= self.sweep_at.max(FIRST_SWEEP) {
            self.sweep();
        }
        let epoch = self.forgotten;
        let made = || {
            let state = TagState { hard: epoch, soft: epoch, expired_at: 0, spread: None };
            Arc::new(MemoryTag { soft: AtomicU64::new(epoch), state: Mutex::new(state) })
        };
        Arc::clone(self.tags.entry(digest).or_insert_with(made))
    }

    fn sweep(&mut self) {
        let mut forgotten = self.forgotten;
        self.tags.retain(|_, tag| {
            // Without other references, no entry and no lease has it. New ones need this table.
            let is_used = Arc::strong_count(tag) > 1;
            if !is_used {
                forgotten = forgotten.max(tag.soft.load(Ordering::Acquire));
            }
            is_used
        });
        self.forgotten = forgotten;
        self.sweep_at = self.tags.len() * 2;
    }
}

impl MemoryTag {
    /// What this tag has made of an entry of a key.
    #[inline]
    pub(super) fn standing(&self, seen: &TagEpoch, key: impl FnOnce() -> Digest) -> Standing {
        if self.soft.load(Ordering::Acquire) == seen.soft {
            return Standing::Current;
        }
        let state = *locked(&self.state);
        // Its clock is never set back.
        state.standing(seen, &key(), || u64::MAX)
    }

    fn view(self: Arc<Self>, digest: Digest) -> TagView {
        let TagState { hard, soft, .. } = *locked(&self.state);
        TagView { tag: self, epoch: TagEpoch { tag: digest, hard, soft } }
    }
}

const FIRST_SWEEP: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::clock::Clock;
    use crate::tag::Tag;

    fn shelf(number: u64) -> Tags {
        Tags::new([Tag::of("shelf").with(number)]).expect("one tag")
    }

    #[test]
    fn numbers_of_a_sequence_grow_though_the_clock_stands_still() {
        let (sequence, now) = (Sequence::default(), Clock::start().now());
        let numbers: Vec<_> = (0..100).map(|_| sequence.next(now)).collect();
        assert!(numbers.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn tags_without_entries_are_forgotten_and_their_invalidations_are_not() {
        let (tags, sequence) = (MemoryTags::default(), Sequence::default());
        let now = Clock::start().now();
        let used = tags.view(&shelf(0));
        let fence = sequence.next(now);
        tags.change(Tag::of("shelf").with(1).digest(), Withdrawal::Invalidate, &sequence, now);
        for number in 2..10_000 {
            drop(tags.view(&shelf(number)));
            assert!(locked(&tags.table).tags.len() <= FIRST_SWEEP + 1);
        }
        assert_eq!(tags.view(&shelf(0))[0].epoch, used[0].epoch);
        assert!(tags.view(&shelf(1))[0].epoch.soft > fence);
    }
}
