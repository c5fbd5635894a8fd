//! The envelope: the stored bytes of an entry.
//!
//! Numbers are big-endian:
//!
//! | offset | length | field |
//! |---|---|---|
//! | 0 | 3 | magic, `BWE` |
//! | 3 | 1 | version, 1 |
//! | 4 | 1 | codec of the value |
//! | 5 | 1 | 1 if it is refreshed early, and 2 if it is fresh in outages: their sum |
//! | 6 | 2 | the number of tags |
//! | 8 | 20 | digest of the key |
//! | 28 | 8 | fence |
//! | 36 | 8 | stored at, in us of the store's clock |
//! | 44 | 8 | ttl, in ms |
//! | 52 | 8 | stale while it is revalidated, in ms |
//! | 60 | 8 | stale if there is an error, in ms |
//! | 68 | 8 | stale to be validated, in ms |
//! | 76 | 4 | load time, in us |
//! | 80 | 4 | length of the value |
//! | 84 | 4 | CRC-32 (IEEE 802.3) of bytes 0 to 83, and all from 96 on |
//! | 88 | 8 | made stale at, in us of the store's clock; zero unless that was before the end of its ttl |
//! | 96 | 36 each | tags, each with the 20 bytes of its digest, the hard and the soft epoch |
//! | after the tags | | value |
//!
//! The times and the lifetimes are the absolute end of an entry, by the store's clock. So a lookup
//! needs nothing but the bytes and the server's time.
//!
//! The scripts read version, fence, times and stale windows at these offsets, and write "made stale
//! at". All other bytes are unreadable, which counts as a miss. An envelope of a newer version is not
//! overwritten.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};

use bellwether::Lifetimes;
use bellwether::adapter::{micros, millis};
use bellwether::store::{Digest, Draft, Entry, TagEpoch, Value};
use bellwether_redis_client::ServerTime;

/// The contents of an envelope.
#[derive(Debug)]
pub(super) struct Opened {
    /// As if it were fresh: its end needs the server's time.
    pub(super) entry: Entry,
    /// When a script has made it stale before the end of its ttl, or zero.
    pub(super) stale_at: u64,
}

impl Opened {
    /// Whether it may be invalid because the server's clock was set back: its life may be over, or
    /// may not have begun. If the clock was not set, this holds only at the very end of a life.
    pub(super) fn may_be_over(&self, now: Option<ServerTime>) -> bool {
        let is_over = |now| self.life_left(now).is_none();
        now.is_none_or(|now| is_over(now.earliest) || is_over(now.latest))
    }

    /// What is left of its life at a time of the server, or none if it is over. An entry that was stored or
    /// made stale at a later time counts as none: the server's clock was set back. The scripts find an entry
    /// fresh by the same rule.
    pub(super) fn life_left(&self, now: u64) -> Option<Duration> {
        let (stored_at, lifetimes) = (self.entry.stored_at(), self.entry.lifetimes());
        if stored_at.max(self.stale_at) > now.saturating_add(DRIFT) {
            return None;
        }
        let since = |at, life| micros(life).saturating_sub(now.saturating_sub(at));
        let left = since(stored_at, lifetimes.life());
        let left = match self.stale_at {
            0 => left,
            stale_at => left.min(since(stale_at, lifetimes.stale())),
        };
        (left > 0).then(|| Duration::from_micros(left))
    }
}

/// Encodes a draft.
pub(super) fn seal(
    draft: &Draft,
    key: &Digest,
    fence: u64,
    stored_at: u64,
    epochs: &[TagEpoch],
) -> Vec<u8> {
    let value = draft.value.encoded();
    // `max_entry_bytes` keeps a value far below 4 GiB.
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    let mut sealed = Vec::with_capacity(HEADER + epochs.len() * TAG + value.len());
    let lifetimes = draft.lifetimes;
    let flags = u8::from(lifetimes.is_refreshed_early()) * EARLY
        + u8::from(lifetimes.is_fresh_in_outages()) * FRESH_IN_OUTAGES;
    sealed.put_slice(MAGIC);
    sealed.put_slice(&[VERSION, draft.codec, flags]);
    // An entry has at most 33.
    sealed.put_u16(u16::try_from(epochs.len()).unwrap_or(u16::MAX));
    sealed.put_slice(key.as_bytes());
    sealed.put_u64(fence);
    sealed.put_u64(stored_at);
    let stale = [lifetimes.while_revalidate(), lifetimes.if_error(), lifetimes.for_validation()];
    for window in [lifetimes.ttl()].into_iter().chain(stale) {
        sealed.put_u64(millis(window));
    }
    sealed.put_u32(u32::try_from(draft.load_time.as_micros()).unwrap_or(u32::MAX));
    sealed.put_u32(length);
    // In the place of the checksum, until it is known.
    sealed.put_u32(0);
    sealed.put_u64(0);
    for epoch in epochs {
        sealed.put_slice(epoch.tag.as_bytes());
        sealed.put_u64(epoch.hard);
        sealed.put_u64(epoch.soft);
    }
    sealed.put_slice(value);
    let sum = checksum(&sealed[..SUMMED], &sealed[HEADER..]);
    sealed[SUMMED..STALE_AT].copy_from_slice(&sum.to_be_bytes());
    sealed
}

/// Decodes what [`seal`] wrote for this key, or says why not. The value shares the memory of `sealed`.
pub(super) fn open(mut sealed: Bytes, key: &Digest) -> Result<Opened, &'static str> {
    let (header, rest) = sealed.split_first_chunk::<HEADER>().ok_or(DAMAGED)?;
    let mut fields = header.strip_prefix(MAGIC).ok_or(DAMAGED)?;
    let version = fields.get_u8();
    if version > VERSION {
        return Err(NEWER);
    }
    let (codec, flags, tags) = (fields.get_u8(), fields.get_u8(), fields.get_u16());
    let digest = digest_of(&mut fields);
    let (fence, stored_at) = (fields.get_u64(), fields.get_u64());
    let [ttl, while_revalidate, if_error, for_validation] =
        [(); 4].map(|()| Duration::from_millis(fields.get_u64()));
    let load_time = Duration::from_micros(fields.get_u32().into());
    let (length, sum, stale_at) = (fields.get_u32() as usize, fields.get_u32(), fields.get_u64());
    let parts = rest.split_at_checked(usize::from(tags) * TAG);
    let Some((tags, value)) = parts.filter(|(_, value)| value.len() == length) else {
        return Err(DAMAGED);
    };
    if version != VERSION
        || flags > EARLY + FRESH_IN_OUTAGES
        || checksum(&header[..SUMMED], rest) != sum
    {
        return Err(DAMAGED);
    }
    let epochs = open_tags(tags);
    if digest != *key {
        return Err(OTHER_KEY);
    }
    sealed.advance(sealed.len() - value.len());
    let lifetimes = Lifetimes::fresh_for(ttl)
        .stale_while_revalidate(while_revalidate)
        .stale_if_error(if_error)
        .kept_for_validation(for_validation);
    let has = |flag| flags & flag != 0;
    let lifetimes = if has(EARLY) { lifetimes.refreshed_early() } else { lifetimes };
    let lifetimes = if has(FRESH_IN_OUTAGES) { lifetimes.fresh_in_outages() } else { lifetimes };
    let draft = Draft::new(Value::new(sealed), codec, lifetimes).timed(load_time, Duration::ZERO);
    let entry = draft.into_entry(fence, stored_at, None, epochs);
    Ok(Opened { entry, stale_at })
}

/// The tags of an envelope: the bytes between the header and the value.
fn open_tags(tags: &[u8]) -> Vec<TagEpoch> {
    let epoch = |mut tag: &[u8]| TagEpoch {
        tag: digest_of(&mut tag),
        hard: tag.get_u64(),
        soft: tag.get_u64(),
    };
    tags.chunks_exact(TAG).map(epoch).collect()
}

fn digest_of(fields: &mut &[u8]) -> Digest {
    let mut digest = [0; Digest::BYTES];
    fields.copy_to_slice(&mut digest);
    Digest::from(digest)
}

/// The fence at the offset where the scripts read it, even if the envelope is damaged.
pub(super) fn fence(sealed: &[u8]) -> u64 {
    sealed.get(FENCE..).and_then(|mut fence| fence.try_get_u64().ok()).unwrap_or(0)
}

fn checksum(header: &[u8], value: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(header);
    sum.update(value);
    sum.finalize()
}

/// Why bytes are not an envelope of ours: they are something else, truncated, or changed.
const DAMAGED: &str = "not an envelope, or a damaged one";

/// They were written by a later version of this crate.
const NEWER: &str = "an envelope of a newer version";
const OTHER_KEY: &str = "the envelope of another key";

/// How far two clocks may drift apart during one load, in us. The scripts have the same value.
pub(super) const DRIFT: u64 = 1_000_000;

const MAGIC: &[u8; 3] = b"BWE";

const VERSION: u8 = 1;

/// It is refreshed early.
const EARLY: u8 = 1;

/// It is fresh in outages.
const FRESH_IN_OUTAGES: u8 = 2;

const HEADER: usize = 96;

/// The length of a tag: its digest and its epochs.
const TAG: usize = Digest::BYTES + 16;

/// The offset of the time at which it was made stale. The checksum leaves it out, because scripts write
/// it.
const STALE_AT: usize = 88;

/// The offset of the fence.
const FENCE: usize = 28;

/// The offset of the checksum, which is over everything before it, and from the tags on.
const SUMMED: usize = 84;

#[cfg(test)]
mod tests {
    use super::*;
    use bellwether::{Key, Lifetimes};

    fn sealed(value: &'static [u8]) -> (Vec<u8>, Digest) {
        let lifetimes = Lifetimes::fresh_for(Duration::from_secs(60))
            .stale_while_revalidate(Duration::from_millis(1500))
            .stale_if_error(Duration::from_secs(4))
            .kept_for_validation(Duration::from_secs(5))
            .refreshed_early();
        let draft = Draft::new(Value::new(Bytes::from_static(value)), 1, lifetimes)
            .timed(Duration::from_millis(52), Duration::ZERO);
        let digest = Digest::from(std::array::from_fn(|index| index as u8));
        let stored_at = 0x1112_1314_1516_1718;
        (seal(&draft, &digest, 0x0102_0304_0506_0708, stored_at, &[]), digest)
    }

    fn sealed_with(tags: u8) -> (Vec<u8>, Digest, Vec<TagEpoch>) {
        let draft = Draft::new(Value::new(b"value"[..].into()), 1, Lifetimes::default());
        let digest = Key::of("item").digest();
        let epoch = |tag: u8| TagEpoch {
            tag: Digest::from([tag; 20]),
            hard: u64::from(tag) << 32,
            soft: 7,
        };
        let epochs: Vec<_> = (0..tags).map(epoch).collect();
        let sealed = seal(&draft, &digest, 1, 2, &epochs);
        (sealed, digest, epochs)
    }

    #[test]
    fn tags_are_written_as_these_very_bytes() {
        let (sealed, ..) = sealed_with(2);
        assert_eq!(&sealed[..8], b"BWE\x01\x01\0\0\x02");
        let tags: &[u8] = b"\
            \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07\
            \x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\
            \0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x07";
        assert_eq!(&sealed[96..168], tags);
        assert_eq!(&sealed[168..], b"value");
    }

    #[test]
    fn tags_are_opened_as_they_were_sealed() {
        for count in 0..=33 {
            let (sealed, digest, expected) = sealed_with(count);
            let Opened { entry, .. } = open(sealed.into(), &digest).unwrap();
            assert_eq!((entry.value().encoded(), entry.fence()), (&b"value"[..].into(), 1));
            assert_eq!(entry.epochs(), expected);
        }
    }

    #[test]
    fn damaged_tags_are_noticed() {
        let (sealed, digest, _) = sealed_with(3);
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            is_noticed(flipped, &digest, bit);
        }
        for length in 0..sealed.len() {
            let cut = Bytes::copy_from_slice(&sealed[..length]);
            assert_eq!(open(cut, &digest).unwrap_err(), DAMAGED, "{length} bytes");
        }
    }

    /// One in the time that the checksum leaves out makes the entry stale.
    fn is_noticed(flipped: Vec<u8>, digest: &Digest, bit: usize) {
        let opened = open(flipped.into(), digest);
        if !(STALE_AT * 8..HEADER * 8).contains(&bit) {
            assert!(opened.is_err(), "bit {bit}");
            return;
        }
        let opened = opened.unwrap();
        let stale = opened.entry.lifetimes().stale();
        for now in [0, opened.entry.stored_at(), opened.stale_at, u64::MAX] {
            assert!(opened.life_left(now).is_none_or(|left| left <= stale), "bit {bit}");
        }
    }

    /// Stored bytes outlive a deployment. If this test fails, the version has to change.
    #[test]
    fn an_entry_is_written_as_these_very_bytes() {
        let (sealed, _) = sealed(b"{\"a\":1}");
        let expected: &[u8] = b"BWE\x01\x01\x01\0\0\
            \x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\
            \x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x15\x16\x17\x18\
            \0\0\0\0\0\0\xea\x60\0\0\0\0\0\0\x05\xdc\0\0\0\0\0\0\x0f\xa0\
            \0\0\0\0\0\0\x13\x88\0\0\xcb\x20\0\0\0\x07";
        assert_eq!(&sealed[..84], expected);
        assert_eq!(&sealed[84..96], b"\x6f\x49\x57\xf0\0\0\0\0\0\0\0\0");
        assert_eq!(&sealed[96..], b"{\"a\":1}");
    }

    #[test]
    fn what_was_sealed_is_what_is_opened() {
        let (sealed, digest) = sealed(b"value");
        let seal_again = sealed.clone();
        let Opened { entry, stale_at } = open(sealed.into(), &digest).unwrap();
        assert_eq!((entry.epochs(), stale_at), (&[][..], 0));
        assert_eq!(entry.value().encoded(), &b"value"[..]);
        assert_eq!(entry.codec(), 1);
        assert_eq!(entry.lifetimes().ttl(), Duration::from_secs(60));
        assert_eq!(entry.lifetimes().while_revalidate(), Duration::from_millis(1500));
        assert_eq!(entry.lifetimes().if_error(), Duration::from_secs(4));
        assert!(entry.lifetimes().is_refreshed_early());
        assert_eq!(entry.load_time(), Duration::from_millis(52));
        assert_eq!(entry.fence(), 0x0102_0304_0506_0708);
        assert_eq!(fence(&seal_again), entry.fence());
        assert_eq!(entry.stored_at(), 0x1112_1314_1516_1718);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (sealed, digest) = sealed(&[0x5a; 512]);
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            is_noticed(flipped, &digest, bit);
        }
    }

    #[test]
    fn an_entry_that_a_script_made_stale_is_opened() {
        let (mut sealed, digest) = sealed(b"value");
        sealed[STALE_AT..HEADER].copy_from_slice(&7_u64.to_be_bytes());
        let Opened { entry, stale_at } = open(sealed.into(), &digest).unwrap();
        assert_eq!((entry.value().encoded(), stale_at), (&b"value"[..].into(), 7));
    }

    #[test]
    fn every_truncation_and_every_addition_is_noticed() {
        let (mut sealed, digest) = sealed(&[0x5a; 512]);
        for length in 0..sealed.len() {
            let cut = Bytes::copy_from_slice(&sealed[..length]);
            assert_eq!(open(cut, &digest).unwrap_err(), DAMAGED, "{length} bytes");
        }
        sealed.push(0);
        assert_eq!(open(sealed.into(), &digest).unwrap_err(), DAMAGED);
    }

    #[test]
    fn the_envelope_of_another_key_is_not_opened() {
        let (sealed, _) = sealed(b"value");
        let other = Key::of("other").digest();
        assert_eq!(open(sealed.into(), &other).unwrap_err(), OTHER_KEY);
    }

    #[test]
    fn a_newer_version_is_told_from_damage() {
        let (mut sealed, digest) = sealed(b"value");
        sealed[3] = 2;
        assert_eq!(open(sealed.into(), &digest).unwrap_err(), NEWER);
    }

    #[test]
    fn a_length_that_promises_more_than_there_is_allocates_nothing() {
        let (mut sealed, digest) = sealed(b"value");
        sealed[80..84].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(open(sealed.into(), &digest).unwrap_err(), DAMAGED);
    }

    #[test]
    fn a_life_ends_by_the_time_of_the_server_and_is_never_longer_than_it_was() {
        let lifetimes = Lifetimes::fresh_for(Duration::from_secs(2))
            .stale_while_revalidate(Duration::from_secs(1));
        let stored_at = 1_000_000_000;
        let draft = Draft::new(Value::new(Bytes::new()), 1, lifetimes);
        let entry = draft.into_entry(1, stored_at, None, Vec::new());
        let mut opened = Opened { entry, stale_at: 0 };
        let left = |now| opened.life_left(now).map(|left| left.as_micros());
        assert_eq!(left(stored_at), Some(3_000_000));
        assert_eq!(left(stored_at + 2_999_999), Some(1));
        assert_eq!(left(stored_at + 3_000_000), None);
        assert_eq!(left(stored_at - DRIFT), Some(3_000_000));
        assert_eq!(left(stored_at - DRIFT - 1), None);
        assert_eq!(left(u64::MAX), None);
        opened.stale_at = stored_at + 1_500_000;
        let left = |now| opened.life_left(now).map(|left| left.as_micros());
        assert_eq!(left(opened.stale_at), Some(1_000_000));
        assert_eq!(left(opened.stale_at + 999_999), Some(1));
        assert_eq!(left(opened.stale_at + 1_000_000), None);
        assert_eq!(left(opened.stale_at - DRIFT), Some(1_000_000), "never fresh again");
        assert_eq!(left(opened.stale_at - DRIFT - 1), None);
        opened.stale_at = stored_at + 2_500_000;
        let left = |now| opened.life_left(now).map(|left| left.as_micros());
        assert_eq!(left(opened.stale_at), Some(500_000), "it was stale before");
    }
}
