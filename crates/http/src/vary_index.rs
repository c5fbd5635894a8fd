//! `VaryIndex`: how a request selects one of the stored variants of its target, and which of them are
//! from before an expiry.

use std::io::Write;
use std::time::{Duration, SystemTime};

use bellwether::{BoxError, EncodeBuffer, Key, Lifetimes};
use bellwether_body::BufferedResponse;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};
use serde::{Deserialize, Serialize};

use super::note::{Note, millis, since, since_epoch};
use super::rules;

/// How a request selects one of the stored variants of its target.
///
/// Only the index of a target is found by its URI, not the variants. So an expiry of a URI is noted
/// here: it counts up `expiries`. A variant that was loaded under another count is stale, and the next
/// request for it tells the store so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VaryIndex {
    /// The selecting header fields, sorted and in lower case.
    names: Vec<String>,
    /// Part of the keys of its variants. With a new nonce, the old variants are not found.
    nonce: [u8; 16],
    /// How long it is stored, in milliseconds.
    life: u64,
    /// How often its variants were expired.
    expiries: u32,
    /// When they were expired last, in milliseconds since the Unix epoch.
    expired_at: u64,
}

impl VaryIndex {
    /// The first byte of an encoded index.
    pub(super) const FIRST_BYTE: u8 = 2;

    /// A `Vary` index by names in any order. It is stored as long as its first variant, and for a
    /// day at least. `expiries` is the count under which that variant was loaded.
    pub(super) fn new(names: &[HeaderName], life: Duration, expiries: u32) -> Self {
        let mut names: Vec<_> = names.iter().map(|name| name.as_str().to_owned()).collect();
        names.sort_unstable();
        names.dedup();
        let nonce = *uuid::Uuid::new_v4().as_bytes();
        Self { names, nonce, life: millis(life.max(A_DAY)), expiries, expired_at: 0 }
    }

    /// Distinguishes the keys of its variants from those of any other `Vary` index.
    pub(super) fn nonce(&self) -> [u8; 16] {
        self.nonce
    }

    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.nonce == other.nonce && self.expiries == other.expiries
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

    pub(super) fn lifetimes(&self) -> Lifetimes {
        Lifetimes::fresh_for(Duration::from_millis(self.life))
    }

    /// How often its variants were expired: a variant that is loaded now notes that.
    pub(super) fn expiries(&self) -> u32 {
        self.expiries
    }

    /// Whether a stored variant is from before the last expiry. The store may not know that yet.
    pub(super) fn has_expired(&self, variant: &Note) -> bool {
        variant.expiries != self.expiries
    }

    /// What is left of the stale windows of a variant that the last expiry made stale.
    pub(super) fn left_of(&self, lifetimes: Lifetimes) -> Lifetimes {
        let since = since(self.expired_at);
        Lifetimes::NONE
            .stale_while_revalidate(lifetimes.while_revalidate().saturating_sub(since))
            .stale_if_error(lifetimes.if_error().saturating_sub(since))
            .kept_for_validation(lifetimes.for_validation().saturating_sub(since))
    }

    /// The same index, with its variants expired now.
    pub(super) fn expired(self) -> Self {
        let expired_at = since_epoch(SystemTime::now());
        Self { expiries: self.expiries.wrapping_add(1), expired_at, ..self }
    }

    /// Encodes it, as a response without content.
    pub(super) fn encode(&self, room: &mut EncodeBuffer) -> Result<(), BoxError> {
        room.write_all(&[Self::FIRST_BYTE])?;
        let index = BufferedResponse {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            trailers: None,
            note: self.clone(),
        };
        index.encode(room)
    }

    /// Decodes what [`encode`](Self::encode) wrote.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BoxError> {
        let Some((&Self::FIRST_BYTE, rest)) = bytes.split_first() else {
            return Err("no Vary index".into());
        };
        let BufferedResponse { note: index, .. } = BufferedResponse::<Self>::decode(rest)?;
        if index.names.len() > MOST_NAMES {
            return Err("a Vary index with more names than are stored".into());
        }
        Ok(index)
    }
}

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How many selecting header fields a stored `Vary` index may have.
const MOST_NAMES: usize = 16;
