//! `VaryIndex`: how a request selects one of the stored variants of its target.

use std::io::Write;
use std::time::{Duration, SystemTime};

use bellwether::codec::EncodeBuffer;
use bellwether::store::Tags;
use bellwether::{BoxError, Key, Lifetimes, Tag};
use http::{HeaderMap, HeaderName};
use serde::{Deserialize, Serialize};

use super::rules::{self, Consent};

/// How a request selects one of the stored variants of its target.
///
/// Only the index of a target is found by its URI, not the variants. They share a [tag](Self::tag), by which
/// they expire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VaryIndex {
    /// The selecting header fields, sorted and in lower case.
    names: Vec<String>,
    /// Part of the keys of its variants. With a new nonce, the old variants are not found.
    pub(super) nonce: [u8; 16],
    /// How long it is stored.
    life: Duration,
}

impl VaryIndex {
    /// The first byte of an encoded index.
    pub(super) const FIRST_BYTE: u8 = 2;

    /// A `Vary` index by names in any order, [stored](Self::stored_for) for its first variant.
    pub(super) fn new(names: &[HeaderName], life: Duration) -> Self {
        let mut names: Vec<_> = names.iter().map(|name| name.as_str().to_owned()).collect();
        names.sort_unstable();
        names.dedup();
        let nonce = *uuid::Uuid::new_v4().as_bytes();
        Self { names, nonce, life }.stored_for(life)
    }

    /// The same index, stored for twice as long as a variant, and for a day at least. So it is seldom
    /// stored again for later variants.
    pub(super) fn stored_for(&self, variant: Duration) -> Self {
        Self { life: variant.saturating_mul(2).max(A_DAY), ..self.clone() }
    }

    /// The tag of all variants of a target, whatever its index is.
    pub(super) fn tag(primary: &Key) -> Tag {
        Tag::of("http-variants").with(primary.digest().as_bytes())
    }

    /// The tags that a request names: for a variant, the one that all have. So its load begins under an epoch
    /// of the tag, and a lookup reads the tag with the variant.
    pub(super) fn tags_of_request(index: Option<&Self>, primary: &Key) -> Tags {
        let tag = index.map(|_| Self::tag(primary).digest());
        Tags::of_entry(tag.into_iter())
    }

    pub(super) fn names(&self) -> Vec<HeaderName> {
        self.names.iter().filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok()).collect()
    }

    /// Whether all of these names are among its selecting header fields.
    pub(super) fn covers(&self, names: &[HeaderName]) -> bool {
        names.iter().all(|name| self.names.iter().any(|known| known == name.as_str()))
    }

    /// The key of the variant that a request selects. It has a fixed length, so that no header field
    /// makes a key too long.
    pub(super) fn key_for(&self, primary: &Key, request: &HeaderMap) -> Key {
        let mut selecting = Key::of("http-select").with(self.nonce);
        for (name, value) in rules::variant(&self.names(), request) {
            selecting = selecting.with(name).with(value);
        }
        Key::of("http-variant")
            .with(primary.digest().as_bytes())
            .with(selecting.digest().as_bytes())
    }

    /// Without the store, too: variants that it does not find any more could replace no error.
    pub(super) fn lifetimes(&self) -> Lifetimes {
        Lifetimes::fresh_for(self.life).fresh_in_outages()
    }

    /// Writes it as it is stored: behind the byte that tells it from a response.
    pub(super) fn encode(&self, room: &mut EncodeBuffer) -> Result<(), BoxError> {
        room.write_all(&[Self::FIRST_BYTE])?;
        postcard::to_io(self, &mut *room)?;
        Ok(())
    }

    /// Decodes what [`encode`](Self::encode) wrote.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BoxError> {
        let Some((&Self::FIRST_BYTE, rest)) = bytes.split_first() else {
            return Err("no Vary index".into());
        };
        let index: Self = postcard::from_bytes(rest)?;
        if index.names.len() > MOST_NAMES {
            return Err("a Vary index with more names than are stored".into());
        }
        Ok(index)
    }
}

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How many selecting header fields a stored `Vary` index may have.
const MOST_NAMES: usize = 16;

/// What is stored beside a response, to compute its age and freshness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) received: SystemTime,
    /// Its age when it was received.
    pub(super) age: Duration,
    /// How much longer it was fresh when it was received.
    pub(super) fresh: Duration,
    /// How explicitly the response permits sharing.
    pub(super) consent: Consent,
    /// How long it may be served after that if the origin fails.
    pub(super) if_error: Duration,
}

impl Note {
    /// The age of the response. If the clock was set back, it is the age on arrival.
    pub(super) fn age(&self) -> Duration {
        self.age.saturating_add(self.stored_for())
    }

    /// How much longer it is fresh, by the freshness lifetime that it had on arrival.
    pub(super) fn fresh_for(&self) -> Option<Duration> {
        self.fresh.checked_sub(self.stored_for())
    }

    /// How long ago it was received. Zero if the clock was set back.
    fn stored_for(&self) -> Duration {
        SystemTime::now().duration_since(self.received).unwrap_or_default()
    }
}
