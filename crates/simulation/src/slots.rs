//! The slots of a cluster: which shard owns which part of them.

use std::ops::{Range, RangeInclusive};

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use crate::server::SLOTS;

/// The owners of equal parts of the slots.
#[derive(Clone, Debug)]
pub(crate) struct SlotParts([usize; PARTS]);

/// Slots that get another owner.
#[derive(Clone, Debug)]
pub(crate) struct SlotMove {
    parts: Range<usize>,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl SlotParts {
    /// Those of so many shards.
    pub(crate) fn new(shards: usize) -> Self {
        Self(std::array::from_fn(|part| part * shards / PARTS))
    }

    /// Ranges of slots, and the shards that own them.
    pub(crate) fn ranges(&self) -> Vec<(RangeInclusive<u16>, usize)> {
        let mut begin = 0;
        let runs = self.0.chunk_by(|one, other| one == other);
        let range = |run: &[usize]| {
            let parts = begin..begin + run.len();
            begin = parts.end;
            (slots(&parts), run[0])
        };
        runs.map(range).collect()
    }

    /// Some slots of a shard, for another one. None if it has none.
    pub(crate) fn draw(&self, from: usize, to: usize, random: &mut SmallRng) -> Option<SlotMove> {
        let own: Vec<_> = (0..PARTS).filter(|part| self.0[*part] == from).collect();
        let first = *own.choose(random)?;
        let most = first + random.random_range(1..=3);
        let end = (first..PARTS.min(most)).take_while(|part| self.0[*part] == from).last()? + 1;
        Some(SlotMove { parts: first..end, from, to })
    }

    /// The slots have another owner now.
    pub(crate) fn moved(&mut self, moved: &SlotMove) {
        self.0[moved.parts.clone()].fill(moved.to);
    }
}

impl SlotMove {
    pub(crate) fn slots(&self) -> RangeInclusive<u16> {
        slots(&self.parts)
    }
}

fn slots(parts: &Range<usize>) -> RangeInclusive<u16> {
    let [first, end] =
        [parts.start, parts.end].map(|part| (part * usize::from(SLOTS) / PARTS) as u16);
    first..=end - 1
}

/// How many parts there are. It is a multiple of all numbers of shards.
const PARTS: usize = 12;
