//! `Compressed`: a codec that compresses what another one writes.

use std::io::Write as _;

use bytes::Bytes;

use super::{Cacheability, Codec, EncodeBuffer};
use crate::error::BoxError;
use crate::status::CacheStatus;
use crate::tag::Tag;

/// Compresses what another codec writes, by LZ4, if that saves bytes: less memory in the store, and more entries
/// that fit into the message to waiters, which carries 16 KiB. Rows of ids, numbers and words shrink to half, for
/// one or two microseconds per KiB to write, and less to read: `cargo bench -p bellwether-benches -- compression`
/// prints that, and that 76 % in place of 60 % of answers from 1 to 128 KiB fit into a message.
///
/// Each entry says whether it is compressed. Its [number](Codec::id) is 32 from that of the other codec, so an
/// entry without compression is a miss, and one with it is a miss for programs without. To roll it out without
/// that, set another [`version`](crate::CacheBuilder::version).
///
/// ```
/// use std::time::Duration;
///
/// use bellwether::codec::{Compressed, Json};
/// use bellwether::{Cache, MemoryStore};
///
/// let pages: Cache<u64, String, _> = Cache::builder("page", MemoryStore::new(1_000))
///     .ttl(Duration::from_secs(60))
///     .codec(Compressed::new(Json::default()).above(4096))
///     .build()?;
/// # drop(pages);
/// # Ok::<_, bellwether::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Compressed<C> {
    codec: C,
    above: usize,
    most: usize,
}

impl<C> Compressed<C> {
    /// Compresses what this codec writes.
    pub const fn new(codec: C) -> Self {
        Self { codec, above: 1024, most: 1024 * 1024 }
    }

    /// Sets how many bytes an answer has at most that is stored as it is.
    ///
    /// Default: 1 KiB. Smaller ones fit into a packet of the network anyway.
    pub fn above(self, bytes: usize) -> Self {
        Self { above: bytes, ..self }
    }

    /// Sets how many bytes an answer may have before it is compressed. A larger one is not stored. Nor is an
    /// entry read that claims to be larger: a few bytes cannot fill the memory.
    ///
    /// Default: 1 MiB, as [`max_entry_bytes`](crate::service::ReadThroughLayerBuilder::max_entry_bytes), which
    /// bounds the bytes that are stored.
    pub fn at_most(self, bytes: usize) -> Self {
        Self { most: bytes, ..self }
    }

    /// What the other codec has written.
    fn plain(&self, bytes: &[u8]) -> Result<Vec<u8>, BoxError> {
        let Some((len, compressed)) = split(bytes)? else { return Ok(bytes[1..].to_vec()) };
        if len > self.most {
            return Err("a compressed answer is too large".into());
        }
        let mut plain = vec![0; len];
        match lz4_flex::block::decompress_into(compressed, &mut plain)? == len {
            true => Ok(plain),
            false => Err("a compressed answer is shorter than it says".into()),
        }
    }
}

/// How long an entry is without compression, and its compressed bytes. `None`: it is not compressed.
fn split(bytes: &[u8]) -> Result<Option<(usize, &[u8])>, BoxError> {
    match bytes.split_first() {
        Some((&PLAIN, _)) => Ok(None),
        Some((&LZ4, rest)) => match rest.split_first_chunk() {
            Some((len, compressed)) => Ok(Some((u32::from_le_bytes(*len) as usize, compressed))),
            None => Err("a compressed answer without a length".into()),
        },
        _ => Err("neither a plain nor a compressed answer".into()),
    }
}

/// How long an entry of a codec of this crate is without compression, if it is compressed. An LZ4 block of some
/// bytes gives 255 times as many at most, whatever it claims.
pub(super) fn plain_len(codec: u8, bytes: &[u8]) -> Option<usize> {
    let is_ours = (COMPRESSED..2 * COMPRESSED).contains(&codec);
    let (len, compressed) = is_ours.then(|| split(bytes).ok().flatten()).flatten()?;
    Some(len.min(compressed.len().saturating_mul(255)))
}

impl<Response, C: Codec<Response>> Codec<Response> for Compressed<C> {
    type Kept = C::Kept;

    fn id(&self) -> u8 {
        self.codec.id() ^ COMPRESSED
    }

    fn keep(&self, response: Response) -> C::Kept {
        self.codec.keep(response)
    }

    fn restore(&self, kept: &C::Kept, status: &CacheStatus) -> Response {
        self.codec.restore(kept, status)
    }

    fn restore_owned(&self, kept: C::Kept, status: &CacheStatus) -> Response {
        self.codec.restore_owned(kept, status)
    }

    fn classify(&self, kept: &C::Kept) -> Cacheability {
        self.codec.classify(kept)
    }

    fn tags(&self, kept: &C::Kept) -> Vec<Tag> {
        self.codec.tags(kept)
    }

    fn encode(&self, kept: &C::Kept, buffer: &mut EncodeBuffer) -> Result<(), BoxError> {
        let mut plain = EncodeBuffer::new(self.most);
        self.codec
            .encode(kept, &mut plain)
            .inspect_err(|_| buffer.over = plain.over.or(buffer.over))?;
        let plain = plain.bytes;
        if plain.len() > self.above {
            let compressed = lz4_flex::block::compress(&plain);
            if compressed.len() + size_of::<u32>() < plain.len() {
                buffer.write_all(&[LZ4])?;
                buffer.write_all(&u32::try_from(plain.len())?.to_le_bytes())?;
                return Ok(buffer.write_all(&compressed)?);
            }
        }
        buffer.write_all(&[PLAIN])?;
        Ok(buffer.write_all(&plain)?)
    }

    fn decode(&self, bytes: &[u8]) -> Result<C::Kept, BoxError> {
        match split(bytes)? {
            None => self.codec.decode(&bytes[1..]),
            Some(_) => self.codec.decode(&self.plain(bytes)?),
        }
    }

    fn verify(&self, kept: &C::Kept, encoded: &[u8]) -> Result<(), BoxError> {
        self.codec.verify(kept, &self.plain(encoded)?)
    }

    fn is_same(&self, stored: &C::Kept, loaded: &C::Kept) -> Option<bool> {
        self.codec.is_same(stored, loaded)
    }

    fn weight(&self, _: &C::Kept, encoded: &Bytes) -> usize {
        split(encoded).ok().flatten().map_or(encoded.len(), |(len, _)| len)
    }
}

/// What the number of a codec changes by: one of this crate is never that of another, or of none.
const COMPRESSED: u8 = 32;

/// The first byte of an entry that is stored as it is.
const PLAIN: u8 = 0;

/// The first byte of a compressed one. Its length and an LZ4 block follow.
const LZ4: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Json;

    const CODEC: Compressed<Json> = Compressed::new(Json);

    fn encoded(codec: Compressed<Json>, text: &str) -> Bytes {
        let mut buffer = EncodeBuffer::new(usize::MAX);
        codec.encode(&text.to_owned(), &mut buffer).unwrap();
        buffer.into_bytes()
    }

    fn decoded(bytes: &[u8]) -> Result<String, String> {
        Codec::<String>::decode(&CODEC, bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn a_value_comes_back_whether_it_is_compressed_or_not() {
        for len in [0, 1, 1021, 1022, 1023, 100_000] {
            let text = "ab".repeat(len).split_off(len);
            let bytes = encoded(CODEC, &text);
            let is_long = len + 2 > 1024;
            assert_eq!((bytes[0] == LZ4, bytes.len() < len / 2), (is_long, is_long), "{len}");
            assert_eq!(decoded(&bytes).unwrap(), text);
            Codec::<String>::verify(&CODEC, &text, &bytes).unwrap();
            if is_long {
                assert_eq!(Codec::<String>::weight(&CODEC, &text, &bytes), len + 2);
            }
        }
    }

    #[test]
    fn what_does_not_become_smaller_is_stored_as_it_is() {
        let random: String = (0..80).map(|_| uuid::Uuid::new_v4().simple().to_string()).collect();
        let noise = |at: usize| char::from(b'!' + (random.as_bytes()[at] ^ at as u8) % 90);
        let text: String =
            (0..random.len()).map(noise).filter(|it| *it != '\\' && *it != '"').collect();
        let bytes = encoded(CODEC, &text);
        assert!(bytes.len() <= text.len() + 3);
        assert_eq!(decoded(&bytes).unwrap(), text);
    }

    #[test]
    fn a_bomb_is_refused_before_it_takes_memory() {
        let huge = encoded(CODEC.at_most(usize::MAX), &"a".repeat(2 * 1024 * 1024));
        assert!(huge.len() < 10_000);
        assert_eq!(decoded(&huge).unwrap_err(), "a compressed answer is too large");
        let claims = [&[LZ4][..], &u32::MAX.to_le_bytes(), &[0]].concat();
        assert_eq!(decoded(&claims).unwrap_err(), "a compressed answer is too large");
        let small = [&[LZ4][..], &9_u32.to_le_bytes(), &huge[5..]].concat();
        assert!(decoded(&small).is_err());
        let numbers = [huge, claims.into(), small.into()].map(|bytes| plain_len(33, &bytes));
        assert_eq!(numbers, [Some(2 * 1024 * 1024 + 2), Some(255), Some(9)]);
    }

    #[test]
    fn no_compressed_codec_has_the_number_of_another_one_of_this_crate() {
        assert!((0..32).all(|id: u8| (32..64).contains(&(id ^ COMPRESSED))));
        assert!((64..=u8::MAX).all(|id| id ^ COMPRESSED >= 64));
        assert_eq!(Codec::<String>::id(&CODEC), 33);
    }

    #[test]
    fn no_damage_panics() {
        let bytes = encoded(CODEC, &"all work and no play ".repeat(100));
        for cut in 0..bytes.len() {
            assert!(decoded(&bytes[..cut]).is_err());
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.to_vec();
                bytes[at] ^= 1 << bit;
                _ = decoded(&bytes);
            }
        }
    }

    #[test]
    fn a_larger_value_than_the_bound_is_not_stored() {
        let mut buffer = EncodeBuffer::new(usize::MAX);
        let long = "a".repeat(1024 * 1024);
        assert!(CODEC.encode(&long, &mut buffer).is_err() && buffer.is_over());
        assert_eq!(buffer.over, Some(1024 * 1024), "the log names the bound that it has met");
    }
}
