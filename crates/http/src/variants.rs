//! `Variants`: which variants this process has stored of each target, and which of them are evicted.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::Duration;

use bellwether::Key;
use bellwether::adapter::locked;
use tokio::time::Instant;

use super::vary_index::VaryIndex;

/// Which variants this process has stored of each target.
///
/// A target has at most [`MOST_VARIANTS`](Self::MOST_VARIANTS) variants, since clients could request
/// any number of them. One more evicts another, in this order:
///
/// 1. one that is stale,
/// 2. one that was never used, the oldest first,
/// 3. the least used one, where recent uses count for more than old ones.
///
/// The uses of evicted variants are remembered for a while, in a sample of bounded size. So a
/// variant that is requested regularly returns with its uses, whatever else is requested.
#[derive(Default)]
pub(super) struct Variants {
    table: Mutex<VariantTable>,
}

#[derive(Default)]
struct VariantTable {
    targets: HashMap<Key, TargetVariants>,
    /// How many bytes of memory the targets and their variants take together.
    bytes: usize,
    evicted: EvictedVariants,
    /// Counts operations, to order them.
    clock: u64,
    /// Orders variants of equal use at random.
    hasher: RandomState,
}

/// The variants of one target.
struct TargetVariants {
    /// The nonce of its `Vary` index. With another index, the old variants are not found.
    nonce: [u8; 16],
    slots: Vec<VariantSlot>,
}

struct VariantSlot {
    key: Key,
    until: Instant,
    uses: Uses,
    touched: u64,
}

impl Variants {
    /// How many variants of one target are stored.
    pub(super) const MOST_VARIANTS: usize = 64;

    /// Notes that a variant is stored for `life`. Returns the key of the variant that it evicts.
    pub(super) fn add(
        &self,
        vary_index: &VaryIndex,
        target: &Key,
        key: &Key,
        life: Duration,
    ) -> Option<Key> {
        let now = Instant::now();
        locked(&self.table).add(vary_index.nonce, target, key, now + life.min(A_YEAR), now)
    }

    /// Counts a use of a variant. A hit never waits: while another thread holds the table, the use
    /// is not counted. The most used variants still have the most uses.
    pub(super) fn touch(&self, target: &Key, key: &Key) {
        if let Ok(mut table) = self.table.try_lock() {
            table.touch(target, key, Instant::now());
        }
    }
}

impl VariantTable {
    fn add(
        &mut self,
        nonce: [u8; 16],
        target: &Key,
        key: &Key,
        until: Instant,
        now: Instant,
    ) -> Option<Key> {
        self.clock += 1;
        let touched = self.clock;
        self.free_memory(target);
        let variants = self.targets.entry(target.clone()).or_insert_with(|| {
            self.bytes += bytes_of(target);
            TargetVariants::new(nonce)
        });
        if variants.nonce != nonce {
            self.bytes -= variants.bytes();
            *variants = TargetVariants::new(nonce);
        }
        if let Some(slot) = variants.slots.iter_mut().find(|slot| slot.key == *key) {
            slot.until = until;
            return None;
        }
        let is_full = variants.slots.len() >= Variants::MOST_VARIANTS;
        let victim = is_full.then(|| variants.victim(&self.hasher, now)).flatten();
        let evicted = victim.map(|index| variants.slots.swap_remove(index));
        // Earlier uses matter only if the target is full.
        let uses = if is_full { self.evicted.take(key, now) } else { Uses::NONE };
        variants.slots.push(VariantSlot { key: key.clone(), until, uses, touched });
        self.bytes += bytes_of(key);
        evicted.map(|slot| {
            self.bytes -= bytes_of(&slot.key);
            self.evicted.note(&slot, now);
            slot.key
        })
    }

    fn touch(&mut self, target: &Key, key: &Key, now: Instant) {
        self.clock += 1;
        let slots = self.targets.get_mut(target).map(|target| &mut target.slots);
        if let Some(slot) = slots.into_iter().flatten().find(|slot| slot.key == *key) {
            slot.uses.count(now);
            slot.touched = self.clock;
        }
    }

    /// Forgets other targets while the table takes too much memory. Their stored variants expire, or
    /// their store evicts them.
    fn free_memory(&mut self, target: &Key) {
        while self.bytes >= MOST_BYTES {
            let other = self.targets.keys().find(|known| *known != target).cloned();
            let Some(other) = other else { return };
            let forgotten = self.targets.remove(&other);
            let of_variants = forgotten.map_or(0, |forgotten| forgotten.bytes());
            self.bytes -= bytes_of(&other) + of_variants;
        }
    }
}

impl TargetVariants {
    fn new(nonce: [u8; 16]) -> Self {
        Self { nonce, slots: Vec::new() }
    }

    fn bytes(&self) -> usize {
        self.slots.iter().map(|slot| bytes_of(&slot.key)).sum()
    }

    /// The index of the variant to evict first.
    fn victim(&self, hasher: &RandomState, now: Instant) -> Option<usize> {
        let rank = |slot: &VariantSlot| match slot.uses.lately(now).rank() {
            _ if slot.until <= now => (0, 0, slot.touched),
            0 => (1, 0, slot.touched),
            // Among equally used variants the victim is random, so that requests in a cycle do not
            // always evict the variant that is requested next.
            uses => (1, uses, hasher.hash_one(slot.touched)),
        };
        (0..self.slots.len()).min_by_key(|index| rank(&self.slots[*index]))
    }
}

/// How often a variant was used. A use counts for half as much after each [`HALF_LIFE`].
#[derive(Clone, Copy, Debug, Default)]
struct Uses {
    count: f32,
    at: Option<Instant>,
}

impl Uses {
    const NONE: Self = Self { count: 0.0, at: None };

    fn lately(self, now: Instant) -> Self {
        let Some(at) = self.at else { return self };
        let halves = now.saturating_duration_since(at).as_secs_f32() / HALF_LIFE.as_secs_f32();
        Self { count: self.count * (-halves).exp2(), at: Some(now) }
    }

    fn count(&mut self, now: Instant) {
        let count = self.lately(now).count + 1.0;
        *self = Self { count, at: Some(now) };
    }

    /// The count in steps of doubling, so that variants of similar use rank equal. Less than a
    /// quarter of a use is none.
    fn rank(self) -> u32 {
        // At most 130: a count is finite, and no less than a quarter.
        if self.count < 0.25 { 0 } else { (self.count.log2() + 2.5) as u32 }
    }
}

/// The uses of variants that were evicted lately.
///
/// This is a bounded sample of the keys with the smallest hashes. So a variant is either remembered
/// at each eviction of a period, or never. Each period has another hash function, so that every
/// variant is in the sample at times.
#[derive(Default)]
struct EvictedVariants {
    current: Period,
    previous: Period,
}

#[derive(Default)]
struct Period {
    hasher: RandomState,
    began: Option<Instant>,
    uses: BTreeMap<u64, Uses>,
}

impl EvictedVariants {
    /// Remembers the uses of an evicted variant.
    fn note(&mut self, slot: &VariantSlot, now: Instant) {
        let began = *self.current.began.get_or_insert(now);
        if now.saturating_duration_since(began) >= PERIOD {
            self.previous = std::mem::take(&mut self.current);
            self.current.began = Some(now);
        }
        let hash = self.current.hasher.hash_one(&slot.key);
        self.current.uses.insert(hash, slot.uses);
        if self.current.uses.len() > MOST_EVICTED {
            self.current.uses.pop_last();
        }
    }

    /// The remembered uses of a variant that is requested, plus this one. None if it is not
    /// remembered.
    fn take(&mut self, key: &Key, now: Instant) -> Uses {
        let found = [&mut self.current, &mut self.previous].into_iter().find_map(|period| {
            let hash = period.hasher.hash_one(key);
            period.uses.remove(&hash)
        });
        found.map_or(Uses::NONE, |mut uses| {
            uses.count(now);
            uses
        })
    }
}

/// A use counts for half as much after this time, so that one use per minute is visible.
const HALF_LIFE: Duration = Duration::from_secs(60);

/// How long the uses of an evicted variant are remembered: this long, and at most twice as long.
const PERIOD: Duration = Duration::from_secs(60);

/// How many evicted variants are remembered per period: about 300 KiB.
const MOST_EVICTED: usize = 4_096;

/// How many bytes of memory the table takes at most, enough for 16,000 variants with keys of usual
/// length. Clients choose the length of targets, so a bound on their number would not bound memory.
const MOST_BYTES: usize = 4 << 20;

/// About how many bytes a slot takes beside its key, with the unused capacity of the tables.
const BYTES_OF_A_SLOT: usize = 192;

fn bytes_of(key: &Key) -> usize {
    BYTES_OF_A_SLOT + key.byte_len()
}

const A_YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn key(nth: usize) -> Key {
        Key::of("variant").with(nth)
    }

    fn vary_index() -> VaryIndex {
        VaryIndex::new(&[], A_YEAR)
    }

    fn slots(variants: &Variants) -> usize {
        locked(&variants.table).targets.values().map(|target| target.slots.len()).sum()
    }

    /// The bytes that the table has counted, and those that it holds.
    fn counted_and_held(variants: &Variants) -> (usize, usize) {
        let table = locked(&variants.table);
        let held = table.targets.iter().map(|(key, target)| bytes_of(key) + target.bytes());
        (table.bytes, held.sum())
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_of_variants_has_a_bound_in_bytes_for_keys_of_any_length() {
        for length in [1, 900] {
            let variants = Variants::default();
            let vary_index = vary_index();
            let name = "x".repeat(length);
            for target in 0..512 {
                let target = Key::of("target").with(&name).with(target);
                for nth in 0..Variants::MOST_VARIANTS * 2 {
                    variants.add(&vary_index, &target, &key(nth).with(&name), A_YEAR);
                }
                let (counted, held) = counted_and_held(&variants);
                assert_eq!(counted, held);
                assert!(held < MOST_BYTES + 2 * bytes_of(&target), "{held} bytes");
            }
            assert!(slots(&variants) > 3_000, "{}", slots(&variants));
            assert!(locked(&variants.table).evicted.current.uses.len() <= MOST_EVICTED);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_target_evicts_one_variant_for_each_new_one() {
        let variants = Variants::default();
        let vary_index = vary_index();
        let target = Key::of("target");
        for nth in 0..Variants::MOST_VARIANTS {
            assert_eq!(variants.add(&vary_index, &target, &key(nth), A_YEAR), None);
        }
        assert_eq!(variants.add(&vary_index, &target, &key(7), A_YEAR), None, "it is there");
        variants.touch(&target, &key(0));
        assert_eq!(variants.add(&vary_index, &target, &key(100), A_YEAR), Some(key(1)));
        assert_eq!(variants.add(&vary_index, &target, &key(101), A_YEAR), Some(key(2)));
    }

    /// The variants of the old index are not found.
    #[tokio::test(start_paused = true)]
    async fn a_new_vary_index_begins_without_variants() {
        let variants = Variants::default();
        let target = Key::of("target");
        for vary_index in [vary_index(), vary_index()] {
            for nth in 0..Variants::MOST_VARIANTS {
                assert_eq!(variants.add(&vary_index, &target, &key(nth), A_YEAR), None);
            }
            assert_eq!(slots(&variants), Variants::MOST_VARIANTS);
        }
    }

    /// A hundred other variants per second are requested once each.
    #[tokio::test(start_paused = true)]
    async fn a_variant_that_is_requested_every_second_stays_among_many_that_are_requested_once() {
        let variants = Variants::default();
        let vary_index = vary_index();
        let target = Key::of("target");
        let real = Key::of("variant").with("real");
        let mut hits = 0;
        for second in 0..3_600 {
            let is_there = locked(&variants.table)
                .targets
                .get(&target)
                .is_some_and(|target| target.slots.iter().any(|slot| slot.key == real));
            match is_there {
                true => variants.touch(&target, &real),
                false => _ = variants.add(&vary_index, &target, &real, A_YEAR),
            }
            hits += usize::from(is_there);
            for nth in 0..100 {
                variants.add(&vary_index, &target, &key(second * 100 + nth), A_YEAR);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(hits > 1_800, "{hits} of 3,600");
    }
}
