//! `HttpCodec`: what a load returns, what its waiters share, and how responses are stored.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwether::BoxError;
use bellwether::store::Entry;
use bellwether::{CacheStatus, Cacheability, Codec, EncodeBuffer, Lifetimes, Tag};
use bellwether_body::{BufferedResponse, CacheBody};
use bytes::Bytes;
use http::{Response, StatusCode};

use super::note::Note;
use super::vary_index::VaryIndex;

/// What a load returns to each of its callers.
pub(super) enum CacheAnswer<B> {
    /// A response that any number of callers can get.
    CachedResponse(Arc<CachedResponse>),
    /// The target has variants. The index says how a request selects one.
    VaryIndex(Arc<VaryIndex>),
    /// A response for its own caller, as the origin sends it.
    Passthrough(Box<Passthrough<B>>),
    /// The response is stored under another key by now: look up the target again.
    Retry,
}

/// A response that passes through to one caller.
pub(super) struct Passthrough<B> {
    pub(super) response: Response<CacheBody<B>>,
    /// Why it is not stored, for the `detail` of `Cache-Status`.
    pub(super) why: String,
    pub(super) origin: OriginInfo,
    /// Whether only this response is private. If not, the next ones probably are private too.
    pub(super) is_own: bool,
}

/// A response that any number of callers can get.
pub(super) struct CachedResponse {
    pub(super) response: BufferedResponse<Note>,
    /// Whether it is stored. Without effect if it was read from a store.
    pub(super) disposition: Disposition,
    /// How the origin answered the load, if there was one.
    pub(super) origin: OriginInfo,
    /// Its tags, until it is stored.
    pub(super) tags: Vec<Tag>,
}

impl CachedResponse {
    pub(super) fn new(
        mut response: BufferedResponse<Note>,
        disposition: Disposition,
        origin: OriginInfo,
    ) -> Self {
        response.headers.reserve(ADDED);
        Self { response, disposition, origin, tags: Vec::new() }
    }

    pub(super) fn tagged(self, tags: Vec<Tag>) -> Self {
        Self { tags, ..self }
    }

    /// How much longer it is fresh: as the store says, or else by its freshness lifetime.
    pub(super) fn fresh_for(&self, by_store: Option<Duration>) -> Option<Duration> {
        by_store.or_else(|| self.response.note.fresh_for())
    }
}

/// Whether a complete response is stored, shared, or a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    /// It is stored for these lifetimes.
    Keep(Lifetimes),
    /// Waiters get it, and it is not stored.
    Share,
    /// An error that this request may have caused. Waiters ask the origin once more.
    Unconfirmed,
    /// It counts as a failure.
    Failure,
}

/// How the origin answered, for `Cache-Status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OriginInfo {
    /// The status of its response. `None` if this process did not ask it.
    pub(super) status: Option<StatusCode>,
    /// Whether a stored response was to be validated or replaced.
    pub(super) was_stale: bool,
}

/// What the callers of one load share, and what the memory store holds.
pub(super) enum SharedAnswer<B> {
    CachedResponse(Arc<CachedResponse>),
    VaryIndex(Arc<VaryIndex>),
    /// For the first caller that takes it, as there is one body. The lock is held to take it only.
    Passthrough(Mutex<Option<Box<Passthrough<B>>>>),
    Retry,
}

impl<B> SharedAnswer<B> {
    fn passing(passing: Box<Passthrough<B>>) -> Self {
        Self::Passthrough(Mutex::new(Some(passing)))
    }

    fn give(&self) -> CacheAnswer<B> {
        match self {
            Self::CachedResponse(cached) => CacheAnswer::CachedResponse(Arc::clone(cached)),
            Self::VaryIndex(vary_index) => CacheAnswer::VaryIndex(Arc::clone(vary_index)),
            Self::Passthrough(slot) => {
                let passing = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
                passing.map_or(CacheAnswer::Retry, CacheAnswer::Passthrough)
            }
            Self::Retry => CacheAnswer::Retry,
        }
    }
}

/// The codec of stored responses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HttpCodec;

impl HttpCodec {
    /// The number of its encoding. It changes with the format.
    pub(super) const CODEC: u8 = 6;

    /// The encoded `Vary` index of an entry whose variants expire now. `None` if the entry is no index, or
    /// one that has to be replaced.
    pub(super) fn expired_index(entry: &Entry) -> Option<Bytes> {
        if entry.codec() != Self::CODEC {
            return None;
        }
        let index = VaryIndex::decode(entry.value().encoded()).ok()?.expired()?;
        let mut encoded = EncodeBuffer::new(usize::MAX);
        index.encode(&mut encoded).ok()?;
        Some(encoded.into_bytes())
    }

    /// Encodes a response.
    pub(super) fn encode_response(
        cached: &CachedResponse,
        room: &mut EncodeBuffer,
    ) -> Result<(), BoxError> {
        room.write_all(&[CACHED_RESPONSE])?;
        cached.response.encode(room)
    }
}

impl<B> Codec<CacheAnswer<B>> for HttpCodec
where
    B: Send + 'static,
{
    type Kept = SharedAnswer<B>;

    fn id(&self) -> u8 {
        Self::CODEC
    }

    fn keep(&self, found: CacheAnswer<B>) -> SharedAnswer<B> {
        match found {
            CacheAnswer::CachedResponse(cached) => SharedAnswer::CachedResponse(cached),
            CacheAnswer::VaryIndex(vary_index) => SharedAnswer::VaryIndex(vary_index),
            CacheAnswer::Passthrough(passing) => SharedAnswer::passing(passing),
            CacheAnswer::Retry => SharedAnswer::Retry,
        }
    }

    fn restore(&self, kept: &SharedAnswer<B>, _: &CacheStatus) -> CacheAnswer<B> {
        kept.give()
    }

    fn classify(&self, kept: &SharedAnswer<B>) -> Cacheability {
        match kept {
            SharedAnswer::CachedResponse(cached) => match cached.disposition {
                Disposition::Keep(lifetimes) => Cacheability::KeepFor(lifetimes),
                Disposition::Share => NOT_KEPT,
                Disposition::Unconfirmed => Cacheability::Unconfirmed,
                Disposition::Failure => Cacheability::Failure,
            },
            SharedAnswer::VaryIndex(vary_index) => Cacheability::KeepFor(vary_index.lifetimes()),
            SharedAnswer::Passthrough(slot) => {
                let passing = slot.lock().unwrap_or_else(PoisonError::into_inner);
                let is_own = passing.as_ref().is_some_and(|passing| passing.is_own);
                if is_own { Cacheability::PrivateOnce } else { Cacheability::PrivateKey }
            }
            SharedAnswer::Retry => NOT_KEPT,
        }
    }

    fn tags(&self, kept: &SharedAnswer<B>) -> Vec<Tag> {
        match kept {
            SharedAnswer::CachedResponse(cached) => cached.tags.clone(),
            _ => Vec::new(),
        }
    }

    fn encode(&self, kept: &SharedAnswer<B>, room: &mut EncodeBuffer) -> Result<(), BoxError> {
        match kept {
            SharedAnswer::CachedResponse(cached) => Self::encode_response(cached, room),
            SharedAnswer::VaryIndex(vary_index) => vary_index.encode(room),
            SharedAnswer::Passthrough(_) | SharedAnswer::Retry => {
                Err("a response that passes through is not stored".into())
            }
        }
    }

    fn settle(&self, kept: SharedAnswer<B>, encoded: &Bytes) -> SharedAnswer<B> {
        let SharedAnswer::CachedResponse(cached) = &kept else { return kept };
        match BufferedResponse::borrowing(&encoded.slice(1..)) {
            Ok(response) => SharedAnswer::CachedResponse(Arc::new(CachedResponse::new(
                response,
                cached.disposition,
                cached.origin,
            ))),
            Err(_) => kept,
        }
    }

    fn weight(&self, kept: &SharedAnswer<B>, encoded: &Bytes) -> usize {
        match kept {
            SharedAnswer::CachedResponse(cached) => {
                size_of::<CachedResponse>() + cached.response.weight_of_fields()
            }
            _ => encoded.len(),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<SharedAnswer<B>, BoxError> {
        match bytes.split_first() {
            Some((&CACHED_RESPONSE, rest)) => {
                let response = BufferedResponse::decode(rest)?;
                let cached =
                    CachedResponse::new(response, Disposition::Share, OriginInfo::default());
                Ok(SharedAnswer::CachedResponse(Arc::new(cached)))
            }
            Some((&VaryIndex::FIRST_BYTE, _)) => {
                Ok(SharedAnswer::VaryIndex(Arc::new(VaryIndex::decode(bytes)?)))
            }
            _ => Err("neither a response nor a Vary index".into()),
        }
    }
}

/// Shared with the waiters, and not stored.
const NOT_KEPT: Cacheability = Cacheability::KeepFor(Lifetimes::NONE);

const CACHED_RESPONSE: u8 = 1;

/// How many header fields are added to a stored response when it is served: `Age` and
/// `Cache-Status`. Their capacity is reserved, so that no copy has to grow.
const ADDED: usize = 2;

/// An empty body of any kind, as a 304 has.
pub(super) fn no_body<B>() -> CacheBody<B> {
    CacheBody::stored(Bytes::new(), None)
}
