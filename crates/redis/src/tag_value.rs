//! The stored bytes of a tag: its epochs.
//!
//! ```text
//! hard epoch, 8 | soft epoch, 8                                     not expired, or at once
//! hard epoch, 8 | soft epoch, 8 | soft epoch before, 8 | spread, 8  expired over a spread, in ms
//! ```
//! An epoch is a time of the server in us, in 7 bytes, above all earlier epochs of the tag, and a
//! random byte. The random byte is odd if the epoch began with an invalidation or an expiry, and
//! even if the tag was absent. So the epoch of a tag that was forgotten does not come back, not
//! even if the server's clock is set back. Numbers are big-endian.

use std::time::Duration;

use bellwether::store::{Spread, TagState};

/// Reads the bytes of a tag. None if they are none.
pub(super) fn read(bytes: &[u8]) -> Option<TagState> {
    let (numbers, rest) = bytes.as_chunks();
    let number = |at: usize| numbers.get(at).map(|number| u64::from_be_bytes(*number));
    let (hard, soft) = (number(0)?, number(1)?);
    let spread = match (numbers.len(), rest) {
        (2, []) => None,
        (4, []) => Some(Spread { before: number(2)?, over: Duration::from_millis(number(3)?) }),
        _ => return None,
    };
    Some(TagState { hard, soft, expired_at: time_of(soft), spread })
}

/// Whether a tag may have been invalidated or expired at or after this time of the server, in us.
pub(super) fn has_changed_since(TagState { soft, .. }: TagState, time: u64) -> bool {
    soft & CHANGED != 0 && time_of(soft) >= time
}

/// When an epoch began, in us of the server's clock.
fn time_of(epoch: u64) -> u64 {
    epoch >> 8
}

/// The bit of an epoch that began with an invalidation or an expiry.
const CHANGED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    #[test]
    fn what_scripts_write_is_read() {
        let state = |spread| TagState { hard: 0x1_00, soft: 0x3_01, expired_at: 3, spread };
        let read = |numbers: &[u64]| read(&bytes(numbers));
        assert_eq!(read(&[0x1_00, 0x3_01]), Some(state(None)));
        let spread = Spread { before: 0x2_01, over: Duration::from_secs(5) };
        assert_eq!(read(&[0x1_00, 0x3_01, 0x2_01, 5_000]), Some(state(Some(spread))));
    }

    #[test]
    fn other_bytes_are_no_tag() {
        for length in (0..50).filter(|length| ![16, 32].contains(length)) {
            assert_eq!(read(&vec![7; length]), None, "{length} bytes");
        }
    }

    #[test]
    fn a_tag_that_was_absent_has_not_changed() {
        let changed =
            |soft, since| has_changed_since(read(&bytes(&[0, soft])).expect("a tag"), since);
        assert!(changed(0x5_01, 5) && changed(0x5_ff, 4) && !changed(0x5_01, 6));
        assert!(!changed(0x5_00, 5) && !changed(0x5_fe, 1));
    }
}
