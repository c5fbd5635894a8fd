//! Hash slots: a cluster keeps the names of one slot on one node.

use std::array;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

use bellwether::Digest;

/// The number of slots of a cluster.
pub(crate) const SLOTS: usize = 16_384;

/// The slot of a name: the CRC16 (XMODEM) of the text between its first braces, if there is any, or
/// of the whole name.
pub(crate) fn slot_of(name: &[u8]) -> u16 {
    crc16(tag_in(name)) % SLOTS as u16
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let index = usize::from(crc.to_be_bytes()[0] ^ byte);
        (crc << 8) ^ TABLE[index]
    })
}

/// The owners of all slots, by the places of their nodes.
#[derive(Debug)]
pub(super) struct SlotOwners(Box<[AtomicU16]>);

impl SlotOwners {
    /// No slot has an owner.
    pub(super) fn none() -> Self {
        Self((0..SLOTS).map(|_| AtomicU16::new(NO_NODE)).collect())
    }

    pub(super) fn node(&self, slot: u16) -> Option<u16> {
        let node = self.owner(slot).load(Ordering::Acquire);
        (node != NO_NODE).then_some(node)
    }

    /// Sets the owner of a slot. Returns whether it was another one.
    pub(super) fn set(&self, slot: u16, node: Option<u16>) -> bool {
        let node = node.unwrap_or(NO_NODE);
        self.owner(slot).swap(node, Ordering::AcqRel) != node
    }

    /// The owners in the order of the slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<u16>> {
        (0..SLOTS as u16).map(|slot| self.node(slot))
    }

    fn owner(&self, slot: u16) -> &AtomicU16 {
        &self.0[usize::from(slot) % SLOTS]
    }
}

const NO_NODE: u16 = u16::MAX;

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
///
/// The CRC of a text is the exclusive or of those of its digits, each among zeros. So it takes one
/// step for each byte, and the steps do not depend on each other.
impl InSlot for Digest {
    fn slot(&self) -> u16 {
        let bytes = self.as_bytes().iter().zip(DIGITS.iter());
        let crc = bytes.fold(0, |crc, (byte, of_byte)| crc ^ of_byte[usize::from(*byte)]);
        crc % SLOTS as u16
    }
}

/// The CRC of the digits of each byte at each place of a digest, among zeros.
static DIGITS: LazyLock<Box<[[u16; 256]]>> = LazyLock::new(|| {
    (0..Digest::BYTES).map(|place| array::from_fn(|byte| crc_of_digits(place, byte))).collect()
});

fn crc_of_digits(place: usize, byte: usize) -> u16 {
    let mut text = [0; Digest::BYTES * 2];
    let digits = format!("{byte:02x}");
    text[place * 2..][..2].copy_from_slice(digits.as_bytes());
    crc16(&text)
}

/// A hash tag of a slot: the smallest number whose digits are in that slot. It is part of stored
/// names, so it never changes.
pub(super) fn tag_of(slot: u16) -> u32 {
    static TAGS: LazyLock<Box<[u32]>> = LazyLock::new(tags);
    TAGS[usize::from(slot) % SLOTS]
}

fn tags() -> Box<[u32]> {
    let mut tags = vec![u32::MAX; SLOTS].into_boxed_slice();
    let mut left = SLOTS;
    for number in 0.. {
        let tag = &mut tags[usize::from(slot_of(number.to_string().as_bytes()))];
        if *tag == u32::MAX {
            *tag = number;
            left -= 1;
        }
        if left == 0 {
            break;
        }
    }
    tags
}

fn tag_in(name: &[u8]) -> &[u8] {
    let position = |bytes: &[u8], wanted| bytes.iter().position(|byte| *byte == wanted);
    let tag = position(name, b'{').and_then(|open| {
        let rest = &name[open + 1..];
        position(rest, b'}').map(|close| &rest[..close])
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(name)
}

static TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

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
    }
}
