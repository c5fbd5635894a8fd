//! Hash slots: a cluster keeps the names of one slot on one node. [`SlotOwners`] says on which.

use std::array;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bellwether::store::Digest;

/// The number of slots of a cluster.
pub(crate) const SLOTS: usize = 16_384;

/// The slot of a name: the CRC16 (XMODEM) of the text between its first braces, if there is any, or
/// of the whole name.
pub(crate) fn slot_of(name: &[u8]) -> u16 {
    crc16(tag_in(name)) % SLOTS as u16
}

fn crc16(bytes: &[u8]) -> u16 {
    let table = &*TABLE;
    bytes
        .iter()
        .fold(0, |crc: u16, byte| (crc << 8) ^ table[usize::from(crc.to_be_bytes()[0] ^ byte)])
}

/// The owners of all slots: the one table that says which node has a slot. All names of a single
/// server are in one slot, which it owns.
#[derive(Debug)]
pub struct SlotOwners(Box<[AtomicU64]>);

/// A time in which a node owns a slot, or none does. Answers to requests that were sent in another
/// one may be of another node, even if the owner is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ownership(u64);

impl Ownership {
    /// The place of the node, which is `u16::MAX` if there is none.
    #[inline]
    pub fn node(self) -> u16 {
        self.0 as u16
    }

    fn next(self, node: u16) -> Self {
        Self(((self.0 >> 16) + 1) << 16 | u64::from(node))
    }
}

impl SlotOwners {
    /// Those of a single server, or of a cluster, in which no slot has an owner yet.
    pub fn new(is_cluster: bool) -> Self {
        let (slots, owner) = if is_cluster { (SLOTS, NO_PLACE) } else { (1, 0) };
        Self((0..slots).map(|_| AtomicU64::new(owner.into())).collect())
    }

    /// The slot of a key.
    #[inline]
    pub fn slot_of(&self, digest: &Digest) -> u16 {
        if self.0.len() == 1 { 0 } else { digest.slot() }
    }

    /// The ownership of a slot.
    #[inline]
    pub fn of(&self, slot: u16) -> Ownership {
        Ownership(self.owner(slot).load(Ordering::Acquire))
    }

    /// Sets the place of the owner of a slot.
    pub fn set(&self, slot: u16, node: u16) {
        self.update(slot, |now| (now.node() != node).then(|| now.next(node)));
    }

    /// Begins another ownership of the same node.
    pub fn renew(&self, slot: u16) {
        self.update(slot, |now| Some(now.next(now.node())));
    }

    /// The places of the owners, in the order of the slots.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.iter().map(|owner| Ownership(owner.load(Ordering::Acquire)).node())
    }

    fn update(&self, slot: u16, next: impl Fn(Ownership) -> Option<Ownership>) {
        let next = |now| next(Ownership(now)).map(|next| next.0);
        _ = self.owner(slot).fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    #[inline]
    fn owner(&self, slot: u16) -> &AtomicU64 {
        // The number of slots is a power of two.
        &self.0[usize::from(slot) & (self.0.len() - 1)]
    }
}

/// The place of nodes that are not in the table.
pub(super) const NO_PLACE: u16 = u16::MAX;

/// What is in a slot: a name, or a key with all its names.
pub trait InSlot {
    /// Its slot.
    fn slot(&self) -> u16;
}

impl InSlot for Vec<u8> {
    fn slot(&self) -> u16 {
        slot_of(self)
    }
}

/// The slot of its hexadecimal digits, which are in the braces of its names.
impl InSlot for Digest {
    fn slot(&self) -> u16 {
        slot_of(&self.hex())
    }
}

/// A hash tag of a slot: the smallest number whose digits are in that slot. It is part of stored
/// names, so it never changes.
pub(super) fn tag_of(slot: u16) -> u32 {
    TAGS[usize::from(slot) % SLOTS]
}

static TAGS: LazyLock<Box<[u32]>> = LazyLock::new(|| {
    let mut tags = vec![0; SLOTS];
    for number in (0..NUMBERS).rev() {
        tags[usize::from(slot_of(number.to_string().as_bytes()))] = number;
    }
    tags.into()
});

/// The digits of the numbers below this are in all slots.
const NUMBERS: u32 = 109_758;

fn tag_in(name: &[u8]) -> &[u8] {
    let position = |bytes: &[u8], wanted| bytes.iter().position(|byte| *byte == wanted);
    let tag = position(name, b'{').and_then(|open| {
        let rest = &name[open + 1..];
        position(rest, b'}').map(|close| &rest[..close])
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(name)
}

static TABLE: LazyLock<[u16; 256]> = LazyLock::new(|| {
    let shift = |crc: u16| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    array::from_fn(|index| (0..8).fold((index as u16) << 8, |crc, _| shift(crc)))
});

#[cfg(test)]
mod tests {
    use super::*;
    use bellwether::Key;

    #[test]
    fn slots_are_those_of_the_servers() {
        // By `CLUSTER KEYSLOT`.
        let known = [("", 0), ("123456789", 12_739), ("foo", 12_182), ("foo{bar}{x}", 5_061)];
        for (name, slot) in known.into_iter().chain([("bar", 5_061), ("foo{}", 5_542)]) {
            assert_eq!(slot_of(name.as_bytes()), slot, "{name}");
        }
    }

    #[test]
    fn the_slot_of_a_digest_is_that_of_its_digits() {
        for sku in 0..1000 {
            let digest = Key::of("item").with(sku).digest();
            assert_eq!(digest.slot(), slot_of(digest.to_string().as_bytes()));
        }
    }

    #[test]
    fn every_slot_has_a_tag_of_its_own() {
        for slot in 0..SLOTS as u16 {
            assert_eq!(slot_of(format!("bw:shop:fence:{{{}}}", tag_of(slot)).as_bytes()), slot);
        }
        let smallest = |slot| (0..).find(|number| slot_of(format!("{number}").as_bytes()) == slot);
        assert_eq!([0, 1, 16_383].map(tag_of).map(Some), [0, 1, 16_383].map(smallest));
    }
}
