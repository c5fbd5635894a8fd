//! `HttpCodec`: what a load returns, what its waiters share, and how responses are stored.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::adapter::locked;
use bellwether::codec::{Cacheability, Codec, EncodeBuffer};
use bellwether::store::Entry;
use bellwether::{BoxError, CacheStatus, Lifetimes, Tag};
use bellwether_body::{BufferedResponse, CacheBody};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Response, StatusCode, header};

use super::rules::{self, PrivateReason, Terms, Times};
use super::vary_index::{Note, VaryIndex};

/// What a load returns to its callers, and what the memory store holds.
pub(super) enum CacheAnswer<B> {
    /// A response that any number of callers can get.
    CachedResponse(Arc<CachedResponse>),
    /// The target has variants. The index says how a request selects one.
    VaryIndex(Arc<VaryIndex>),
    /// A response as the origin sends it, for the first caller that takes it, as there is one body. The
    /// lock is held to look at it or to take it.
    Passthrough(Arc<Mutex<Option<Passthrough<B>>>>),
    /// The response is stored under another key by now: look up the target again.
    Retry,
}

impl<B> CacheAnswer<B> {
    /// Whether it is a response that passes through, and is like this.
    pub(super) fn passes(&self, is_like: impl FnOnce(&Passthrough<B>) -> bool) -> bool {
        let Self::Passthrough(slot) = self else { return false };
        locked(slot).as_ref().is_some_and(is_like)
    }

    /// The response that any number of callers can get, if it is one.
    pub(super) fn response(&self) -> Option<&Arc<CachedResponse>> {
        let Self::CachedResponse(cached) = self else { return None };
        Some(cached)
    }

    /// Whether it is an error that its own request may have caused.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.response().is_some_and(|it| it.cacheability == Cacheability::Unconfirmed)
    }

    /// Whether it is stored.
    pub(super) fn is_stored(&self) -> bool {
        match self {
            Self::CachedResponse(cached) => cached.is_for_later(),
            Self::VaryIndex(_) | Self::Retry => true,
            Self::Passthrough(_) => false,
        }
    }

    /// The response that passes through, for the first caller that asks for it.
    pub(super) fn take(&self) -> Option<Passthrough<B>> {
        let Self::Passthrough(slot) = self else { return None };
        locked(slot).take()
    }
}

impl<B> Clone for CacheAnswer<B> {
    fn clone(&self) -> Self {
        match self {
            Self::CachedResponse(cached) => Self::CachedResponse(Arc::clone(cached)),
            Self::VaryIndex(vary_index) => Self::VaryIndex(Arc::clone(vary_index)),
            Self::Passthrough(slot) => Self::Passthrough(Arc::clone(slot)),
            Self::Retry => Self::Retry,
        }
    }
}

/// A response that passes through to one caller.
pub(super) struct Passthrough<B> {
    pub(super) response: Response<CacheBody<B>>,
    /// Why it is not stored, for the `detail` of `Cache-Status`.
    pub(super) why: PrivateReason,
    pub(super) origin: OriginInfo,
    /// Whether only this response is private. If not, the next ones probably are private too.
    pub(super) is_own: bool,
}

/// A response that any number of callers can get.
pub(super) struct CachedResponse {
    pub(super) response: BufferedResponse<Note>,
    /// Whether it is stored. Without effect if it was read from a store.
    pub(super) cacheability: Cacheability,
    /// How the origin answered the load, if there was one.
    pub(super) origin: OriginInfo,
    /// Its tags, until it is stored.
    pub(super) tags: Vec<Tag>,
}

impl CachedResponse {
    pub(super) fn new(
        mut response: BufferedResponse<Note>,
        cacheability: Cacheability,
        origin: OriginInfo,
        tags: Vec<Tag>,
    ) -> Self {
        response.headers.reserve(ADDED);
        Self { response, cacheability, origin, tags }
    }

    /// Whether it is stored, and not only shared with the waiters.
    pub(super) fn is_for_later(&self) -> bool {
        matches!(self.cacheability, Cacheability::KeepFor(it) if !it.life().is_zero())
    }

    /// How much longer it is fresh: as the store says, or else by its freshness lifetime.
    pub(super) fn fresh_for(&self, by_store: Option<Duration>) -> Option<Duration> {
        by_store.or_else(|| self.response.note.fresh_for())
    }
}

/// Waiters get it, and it is not stored.
pub(super) fn shared() -> Cacheability {
    Cacheability::KeepFor(Lifetimes::default())
}

/// How the origin answered, for `Cache-Status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OriginInfo {
    /// The status of its response. `None` if this process did not ask it.
    pub(super) status: Option<StatusCode>,
    /// Whether a stored response was to be validated or replaced.
    pub(super) was_stale: bool,
}

/// The codec of stored responses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HttpCodec;

impl HttpCodec {
    /// The number of its encoding. It changes with the format.
    pub(super) const CODEC: u8 = 10;

    /// Whether an entry is a `Vary` index.
    pub(super) fn is_index(entry: &Entry) -> bool {
        entry.codec() == Self::CODEC && VaryIndex::decode(entry.value().encoded()).is_ok()
    }
}

impl<B> Codec<CacheAnswer<B>> for HttpCodec
where
    B: Send + 'static,
{
    type Kept = CacheAnswer<B>;

    fn id(&self) -> u8 {
        Self::CODEC
    }

    fn keep(&self, found: CacheAnswer<B>) -> CacheAnswer<B> {
        found
    }

    fn restore(&self, kept: &CacheAnswer<B>, _: &CacheStatus) -> CacheAnswer<B> {
        kept.clone()
    }

    fn classify(&self, kept: &CacheAnswer<B>) -> Cacheability {
        match kept {
            CacheAnswer::CachedResponse(cached) => cached.cacheability,
            CacheAnswer::VaryIndex(vary_index) => Cacheability::KeepFor(vary_index.lifetimes()),
            CacheAnswer::Passthrough(_) => match kept.passes(|passing| passing.is_own) {
                true => Cacheability::PrivateOnce,
                false => Cacheability::PrivateKey,
            },
            CacheAnswer::Retry => shared(),
        }
    }

    fn tags(&self, kept: &CacheAnswer<B>) -> Vec<Tag> {
        match kept {
            CacheAnswer::CachedResponse(cached) => cached.tags.clone(),
            _ => Vec::new(),
        }
    }

    fn encode(&self, kept: &CacheAnswer<B>, room: &mut EncodeBuffer) -> Result<(), BoxError> {
        match kept {
            CacheAnswer::CachedResponse(cached) => {
                room.write_all(&[CACHED_RESPONSE])?;
                cached.response.encode(room)
            }
            CacheAnswer::VaryIndex(vary_index) => vary_index.encode(room),
            CacheAnswer::Passthrough(_) | CacheAnswer::Retry => {
                Err("a response that passes through is not stored".into())
            }
        }
    }

    fn complete(&self, kept: CacheAnswer<B>, encoded: &Bytes) -> CacheAnswer<B> {
        let CacheAnswer::CachedResponse(cached) = &kept else { return kept };
        let Ok(response) = BufferedResponse::borrowing(&encoded.slice(1..)) else { return kept };
        let CachedResponse { cacheability, origin, .. } = **cached;
        let settled = CachedResponse::new(response, cacheability, origin, Vec::new());
        CacheAnswer::CachedResponse(Arc::new(settled))
    }

    fn weight(&self, kept: &CacheAnswer<B>, encoded: &Bytes) -> usize {
        match kept {
            CacheAnswer::CachedResponse(cached) => {
                size_of::<CachedResponse>() + cached.response.weight_of_fields()
            }
            _ => encoded.len(),
        }
    }

    /// Whether what a client gets is the same but for its times.
    fn is_same(&self, stored: &CacheAnswer<B>, loaded: &CacheAnswer<B>) -> Option<bool> {
        let (CacheAnswer::CachedResponse(stored), CacheAnswer::CachedResponse(loaded)) =
            (stored, loaded)
        else {
            return None;
        };
        let [stored, loaded] = [stored, loaded].map(|it| {
            let BufferedResponse { status, headers, body, .. } = &it.response;
            let mut headers = headers.clone();
            for time in [header::AGE, header::DATE, header::EXPIRES] {
                headers.remove(time);
            }
            (*status, headers, body.clone())
        });
        Some(stored == loaded)
    }

    fn decode(&self, bytes: &[u8]) -> Result<CacheAnswer<B>, BoxError> {
        match bytes.split_first() {
            Some((&CACHED_RESPONSE, rest)) => {
                let response = BufferedResponse::decode(rest)?;
                let origin = OriginInfo::default();
                let cached = CachedResponse::new(response, shared(), origin, Vec::new());
                Ok(CacheAnswer::CachedResponse(Arc::new(cached)))
            }
            Some((&VaryIndex::FIRST_BYTE, _)) => {
                Ok(CacheAnswer::VaryIndex(Arc::new(VaryIndex::decode(bytes)?)))
            }
            _ => Err("neither a response nor a Vary index".into()),
        }
    }
}

const CACHED_RESPONSE: u8 = 1;

/// How many header fields are added to a stored response when it is served: `Age` and
/// `Cache-Status`. Their capacity is reserved, so that no copy has to grow.
const ADDED: usize = 2;

/// An empty body of any kind, as a 304 has.
pub(super) fn no_body<B>() -> CacheBody<B> {
    CacheBody::stored(Bytes::new(), None)
}

/// A response of the origin whose body was read to its end.
pub(super) struct CompleteResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) trailers: Option<HeaderMap>,
    pub(super) origin: OriginInfo,
    pub(super) times: Times,
}

impl CompleteResponse {
    /// The response to be shared, and stored with these tags if its cacheability says so. `unstored`: fields
    /// that it is to lack.
    pub(super) fn to_cached(
        &self,
        unstored: &[HeaderName],
        cacheability: Cacheability,
        terms: &Terms,
        tags: Vec<Tag>,
    ) -> Arc<CachedResponse> {
        let mut headers = rules::storable_headers(&self.headers);
        unstored.iter().for_each(|name| _ = headers.remove(name));
        if !headers.contains_key(header::DATE)
            && let Ok(now) = httpdate::fmt_http_date(self.times.response_time).parse()
        {
            headers.insert(header::DATE, now);
        }
        let Terms { age, consent, stale, .. } = *terms;
        let (received, fresh) = (self.times.response_time, terms.freshness());
        let note = Note { received, age, fresh, consent, if_error: stale.if_error };
        let body = self.body.clone();
        let trailers = self.trailers.clone();
        let response = BufferedResponse { status: self.status, headers, body, trailers, note };
        Arc::new(CachedResponse::new(response, cacheability, self.origin, tags))
    }
}

/// The length that `Content-Length` announces, if it can be read.
pub(super) fn announced(headers: &HeaderMap) -> Option<Option<usize>> {
    let announced = headers.get(header::CONTENT_LENGTH)?;
    Some(announced.to_str().ok().and_then(|length| length.trim().parse().ok()))
}

/// Checks that a body has the length that `Content-Length` announced. One with fewer or more bytes
/// is not the response.
pub(super) fn check_length(headers: &HeaderMap, length: usize) -> Result<(), BoxError> {
    match announced(headers) {
        Some(announced) if announced != Some(length) => {
            Err("the body does not have the length that Content-Length announced".into())
        }
        _ => Ok(()),
    }
}
