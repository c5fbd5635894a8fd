//! Digests of the tags that a thread used last. Many requests share a tag, so most find its digest
//! here and need not hash it.

use std::cell::RefCell;

use crate::key::{Digest, Key};

/// How many tags a thread remembers, a power of two.
const PLACES: usize = 64;

/// The longest parts that are remembered, in bytes. Those of most tags are shorter.
pub(super) const LONGEST: usize = 64;

thread_local! {
    static RECENT: RefCell<Box<[RecentTag]>> = RefCell::new(vec![RecentTag::NONE; PLACES].into());
}

/// A tag that was used last among those of its place.
#[derive(Clone)]
struct RecentTag {
    parts: [u8; LONGEST],
    /// The length of the parts. Zero if there is none, since each tag has a kind.
    len: usize,
    digest: Digest,
}

impl RecentTag {
    const NONE: Self = Self { parts: [0; LONGEST], len: 0, digest: Digest([0; Digest::BYTES]) };

    fn is_of(&self, parts: &[u8]) -> bool {
        self.parts[..self.len] == *parts
    }

    fn set(&mut self, parts: &[u8], digest: Digest) {
        self.parts[..parts.len()].copy_from_slice(parts);
        self.len = parts.len();
        self.digest = digest;
    }
}

/// The digest of a tag.
pub(super) fn digest_of(tag: &Key) -> Digest {
    let parts = tag.parts();
    if parts.len() > LONGEST {
        return tag.digest();
    }
    // It fails while the thread ends.
    let recent = RECENT.try_with(|recent| {
        let recent = &mut recent.borrow_mut()[place_of(parts)];
        if !recent.is_of(parts) {
            recent.set(parts, tag.digest());
        }
        recent.digest
    });
    recent.unwrap_or_else(|_| tag.digest())
}

/// The place of some parts. Tags of one place take turns, which costs time only.
fn place_of(parts: &[u8]) -> usize {
    let (words, rest) = parts.as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let rest = rest.iter().fold(0, |rest, byte| rest << 8 | u64::from(*byte));
    let mixed = words
        .chain([rest])
        .fold(0_u64, |mixed, word| (mixed.rotate_left(5) ^ word).wrapping_mul(MIXER));
    // Only the highest bits depend on all bits of the words.
    (mixed >> (u64::BITS - PLACES.ilog2())) as usize
}

/// An odd number whose bits are mixed: 2^64 by the golden ratio.
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn tag(number: u64) -> Key {
        Key::of("shelf").with("berlin").with(number)
    }

    #[test]
    fn the_digest_is_that_of_the_tag_whichever_tags_were_used_before() {
        for round in 0..3 {
            for number in 0..10 * PLACES as u64 {
                let tag = tag(number * round);
                assert_eq!(digest_of(&tag), tag.digest());
                assert_eq!(digest_of(&tag), tag.digest());
            }
        }
    }

    #[test]
    fn parts_that_begin_with_those_of_another_tag_are_not_that_tag() {
        let bytes = |len: usize| Key::of("shelf").with(vec![0; len]);
        for len in (0..=LONGEST + 1).chain((0..=LONGEST).rev()) {
            assert_eq!(digest_of(&bytes(len)), bytes(len).digest(), "{len} bytes");
        }
    }

    #[test]
    fn tags_that_differ_by_a_number_are_spread_over_the_places() {
        let tags: [fn(u64) -> Key; 5] = [
            tag,
            |number| Key::of("ab").with(number),
            |number| Key::of("sku").with(number).with("a"),
            |number| Key::of("of a tenant").with(number),
            |number| Key::of("page").with(format!("/shelf/{number}")),
        ];
        for tag in tags {
            let places: HashSet<_> = (0..256).map(|number| place_of(tag(number).parts())).collect();
            assert!(places.len() >= PLACES / 2, "{}: {} places", tag(0), places.len());
        }
    }
}
