//! Names: how keys of a namespace are named in Redis. And their hash slots: a cluster keeps the names of
//! one slot on one node.

use std::array;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bellwether::store::Digest;

/// `bw:<namespace>:{<digest>}` with a suffix.
///
/// Only the digest is in the braces. So all names of a key are in one slot of a cluster, whatever
/// text the key holds.
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(namespace: &str) -> Self {
        Self { prefix: format!("bw:{namespace}:") }
    }

    /// What all names begin with.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A name of a key.
    pub(super) fn name(&self, digest: &Digest, suffix: &str) -> Vec<u8> {
        [self.prefix.as_bytes(), b"{", &digest.hex(), b"}", suffix.as_bytes()].concat()
    }

    /// A name of a key that [`read`](Self::read) does not parse, so its changes are reported to no
    /// watch.
    pub(super) fn unwatched_name(&self, what: &str, digest: &Digest) -> Vec<u8> {
        [self.prefix.as_bytes(), what.as_bytes(), b":{", &digest.hex(), b"}"].concat()
    }

    /// The name of a tag.
    ///
    /// It begins with a letter above that of keys: a server whose tracking table is full drops about
    /// the smallest names of it first.
    pub(super) fn tag_name(&self, tag: &Digest) -> Vec<u8> {
        self.unwatched_name(TAG, tag)
    }

    /// A name that all keys of a slot share.
    pub(super) fn shared_name(&self, what: &str, digest: &Digest) -> Vec<u8> {
        self.tagged_name(what, tag_of(digest.slot()))
    }

    /// A name with a hash tag, of no key.
    pub(super) fn tagged_name(&self, what: &str, tag: u32) -> Vec<u8> {
        format!("{}{what}:{{{tag}}}", self.prefix).into_bytes()
    }

    /// The key that a name belongs to, if it is one of ours, and what follows the digest.
    pub(super) fn read<'a>(&self, name: &'a [u8]) -> Option<(Digest, &'a [u8])> {
        Self::read_digest(name.strip_prefix(self.prefix.as_bytes())?)
    }

    /// The tag that a name is [of](Self::tag_name), if it is one of a tag.
    pub(super) fn tag_of(&self, name: &[u8]) -> Option<Digest> {
        let name = name.strip_prefix(self.prefix.as_bytes())?.strip_prefix(TAG.as_bytes())?;
        Some(Self::read_digest(name.strip_prefix(b":")?)?.0)
    }

    /// The channel of a client, by the mark that it leaves at leases.
    pub(super) fn waiter_channel(&self, mark: &str) -> String {
        format!("{}waiter:{mark}", self.prefix)
    }

    fn read_digest(braced: &[u8]) -> Option<(Digest, &[u8])> {
        let (hex, rest) =
            braced.strip_prefix(b"{")?.split_first_chunk::<{ Digest::BYTES * 2 }>()?;
        let mut digest = [0; Digest::BYTES];
        for (byte, [high, low]) in digest.iter_mut().zip(hex.as_chunks().0) {
            let [high, low] = [*high, *low].map(|digit| char::from(digit).to_digit(16));
            *byte = (high? << 4 | low?) as u8;
        }
        Some((digest.into(), rest.strip_prefix(b"}")?))
    }
}

/// What the names of tags have before their digests.
const TAG: &str = "~tag";

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

    /// The key that a name belongs to.
    fn digest_of(names: &Names, name: &[u8]) -> Option<Digest> {
        names.read(name).map(|(digest, _)| digest)
    }

    const SUFFIXES: [&str; 4] = ["", ":lease", ":failed", ":lock"];

    #[test]
    fn every_name_of_a_key_leads_back_to_it() {
        let names = Names::new("shop");
        let digest = Key::of("item").with("}").with("{x}").digest();
        for suffix in SUFFIXES {
            assert_eq!(digest_of(&names, &names.name(&digest, suffix)), Some(digest));
        }
    }

    #[test]
    fn other_names_lead_nowhere() {
        let names = Names::new("shop");
        let digest = Key::of("item").digest();
        let foreign = Names::new("shop2").name(&digest, "");
        let shared = names.shared_name("fence", &digest);
        let unwatched = names.unwatched_name("queue", &digest);
        let others: [&[u8]; 4] = [b"bw:shop:{", b"bw:shop:{zz", b"", b"\xff\xfe"];
        for name in [&foreign[..], &shared, &unwatched].into_iter().chain(others) {
            assert_eq!(digest_of(&names, name), None);
        }
    }

    #[test]
    fn the_name_of_a_tag_leads_to_the_tag_and_to_no_key() {
        let names = Names::new("shop");
        let digest = Key::of("item").digest();
        let name = names.tag_name(&digest);
        assert!(name.starts_with(b"bw:shop:~tag:{"));
        assert_eq!((names.tag_of(&name), digest_of(&names, &name)), (Some(digest), None));
        for other in [names.name(&digest, ""), Names::new("shop2").tag_name(&digest)] {
            assert_eq!(names.tag_of(&other), None);
        }
    }

    /// A full tracking table loses about the smallest of its names.
    #[test]
    fn the_names_of_tags_are_above_those_of_keys() {
        let names = Names::new("shop");
        let digest = |sku: u64| Key::of("item").with(sku).digest();
        let of_keys =
            (0..100).flat_map(|sku| SUFFIXES.map(|suffix| names.name(&digest(sku), suffix)));
        let least = (0..100).map(|sku| names.tag_name(&digest(sku))).min();
        assert!(of_keys.max() < least);
    }

    #[test]
    fn the_hash_tag_is_the_digest_whatever_the_key_holds() {
        let names = Names::new("shop");
        for text in ["", "}", "{x}", "\0\r\n", "a}b{c"] {
            let digest = Key::of(text).with(text).digest();
            for suffix in SUFFIXES {
                let name = String::from_utf8(names.name(&digest, suffix)).unwrap();
                let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
                assert_eq!(tag.map(|(tag, _)| tag), Some(digest.to_string().as_str()));
            }
        }
    }

    #[test]
    fn all_names_of_a_key_are_in_one_slot() {
        let names = Names::new("shop");
        for sku in 0..100 {
            let digest = Key::of("item").with(sku).digest();
            let shared = names.shared_name("fence", &digest);
            let unwatched = names.unwatched_name("queue", &digest);
            let of_key = SUFFIXES.map(|suffix| names.name(&digest, suffix));
            for name in of_key.iter().chain([&shared, &unwatched]) {
                assert_eq!(name.slot(), digest.slot());
            }
        }
    }

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
