//! What is kept of responses, and how it is written down.

use std::fmt;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bellwether::BoxError;
use bellwether::{CacheStatus, Cacheability, Codec, EncodeBuffer, Key, Lifetimes};
use bellwether_body::{CacheBody, KeptResponse};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::rules::{self, Consent};

/// What a load gives.
pub(super) enum CacheAnswer<B> {
    /// A response that may be given out many times.
    CachedResponse(Arc<CachedResponse>),
    /// There are variants: how a request selects one.
    VaryIndex(Arc<VaryIndex>),
    /// A response for its own caller, as the origin sends it.
    Passthrough(Box<Passthrough<B>>),
    /// What was asked for is no longer kept under this key: look it up again.
    Retry,
}

/// A response that goes through.
pub(super) struct Passthrough<B> {
    pub(super) response: Response<CacheBody<B>>,
    /// Why it is not kept, for the `detail` of `Cache-Status`.
    pub(super) why: String,
    pub(super) said: OriginInfo,
    /// Whether it says nothing of the answers to others, which may well be kept.
    pub(super) is_own: bool,
}

/// A response that may be given out many times.
pub(super) struct CachedResponse {
    pub(super) response: KeptResponse<Note>,
    /// What is to become of it. Nothing any more, if it was read from a store.
    pub(super) disposition: Disposition,
    /// What the origin said when it was asked for it.
    pub(super) said: OriginInfo,
}

impl CachedResponse {
    pub(super) fn new(
        mut response: KeptResponse<Note>,
        disposition: Disposition,
        said: OriginInfo,
    ) -> Self {
        response.headers.reserve(ADDED);
        Self { response, disposition, said }
    }

    /// How much longer it is fresh: as the store says, or else as the origin said.
    pub(super) fn fresh_for(&self, by_store: Option<Duration>) -> Option<Duration> {
        by_store.or_else(|| self.response.note.fresh_for())
    }
}

/// What is to become of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    Keep(Lifetimes),
    /// The waiters are given it, and it is not kept.
    Share,
    /// It may be the fault of its request.
    Unconfirmed,
    /// It counts as a failure.
    Failure,
}

/// What the origin said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OriginInfo {
    /// Its status. None: it was not this process that asked.
    pub(super) status: Option<StatusCode>,
    /// There was a stale answer to be validated or replaced.
    pub(super) was_stale: bool,
}

/// What is noted beside a response that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// When it was received, in milliseconds since the Unix epoch.
    received: u64,
    /// How old it was by then, in milliseconds.
    age: u64,
    /// How long it was to be fresh from then on, in milliseconds.
    fresh: u64,
    /// How plainly it says that it may be shared.
    pub(super) consent: Consent,
}

impl Note {
    pub(super) fn new(
        received: SystemTime,
        age: Duration,
        fresh: Duration,
        consent: Consent,
    ) -> Self {
        Self { received: since_epoch(received), age: millis(age), fresh: millis(fresh), consent }
    }

    /// How old the response is. A clock that was set back makes nothing younger than it came.
    pub(super) fn age(&self) -> Duration {
        Duration::from_millis(self.age).saturating_add(self.resident())
    }

    /// How much longer it is fresh, as the origin said.
    pub(super) fn fresh_for(&self) -> Option<Duration> {
        Duration::from_millis(self.fresh).checked_sub(self.resident())
    }

    fn resident(&self) -> Duration {
        let received = UNIX_EPOCH.checked_add(Duration::from_millis(self.received));
        let since = received.and_then(|received| SystemTime::now().duration_since(received).ok());
        since.unwrap_or_default()
    }
}

fn since_epoch(time: SystemTime) -> u64 {
    millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How a request selects a variant of what is kept for its target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VaryIndex {
    /// The request fields that matter, sorted and in lower case.
    names: Vec<String>,
    /// Part of the keys of its variants: with a new one, none of them is found any more.
    nonce: [u8; 16],
    /// How long it is kept, in milliseconds.
    life: u64,
}

impl VaryIndex {
    /// A `Vary` index by names in any order, for variants of which the first is kept for so long.
    pub(super) fn new(names: &[HeaderName], life: Duration) -> Self {
        let mut names: Vec<_> = names.iter().map(|name| name.as_str().to_owned()).collect();
        names.sort_unstable();
        names.dedup();
        let nonce = *uuid::Uuid::new_v4().as_bytes();
        Self { names, nonce, life: millis(life.max(A_DAY)) }
    }

    /// What tells the keys of its variants from those of any other `Vary` index.
    pub(super) fn nonce(&self) -> [u8; 16] {
        self.nonce
    }

    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.nonce == other.nonce
    }

    pub(super) fn names(&self) -> Vec<HeaderName> {
        self.names.iter().filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok()).collect()
    }

    /// Whether it knows all these names.
    pub(super) fn covers(&self, names: &[HeaderName]) -> bool {
        names.iter().all(|name| self.names.iter().any(|known| known == name.as_str()))
    }

    /// The key of the variant that a request selects. It is of one length whatever the request
    /// says, so that no header field makes a key too long.
    pub(super) fn key_for(&self, primary: &Key, request: &HeaderMap) -> Key {
        let mut selecting = Key::of("http-select").with(self.nonce);
        for (name, value) in rules::variant(&self.names(), request) {
            selecting = selecting.with(name).with(value);
        }
        Key::of("http-variant")
            .with(primary.digest().as_bytes())
            .with(selecting.digest().as_bytes())
    }

    pub(super) fn windows(&self) -> Lifetimes {
        Lifetimes::fresh_for(Duration::from_millis(self.life))
    }
}

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What is kept of what a load gave.
pub(super) enum KeptAnswer<B> {
    CachedResponse(Arc<CachedResponse>),
    VaryIndex(Arc<VaryIndex>),
    /// For the first caller that takes it: there is one body.
    Passthrough(Mutex<Option<Box<Passthrough<B>>>>),
    Retry,
}

impl<B> KeptAnswer<B> {
    fn passing(passing: Box<Passthrough<B>>) -> Self {
        Self::Passthrough(Mutex::new(Some(passing)))
    }

    fn give(&self) -> CacheAnswer<B> {
        match self {
            Self::CachedResponse(whole) => CacheAnswer::CachedResponse(Arc::clone(whole)),
            Self::VaryIndex(vary_index) => CacheAnswer::VaryIndex(Arc::clone(vary_index)),
            Self::Passthrough(slot) => {
                let passing = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
                passing.map_or(CacheAnswer::Retry, CacheAnswer::Passthrough)
            }
            Self::Retry => CacheAnswer::Retry,
        }
    }
}

/// How responses are kept.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HttpCodec;

impl HttpCodec {
    /// The number of its encoding.
    pub(super) const CODEC: u8 = 4;

    /// Writes a response down.
    pub(super) fn encode_whole(
        whole: &CachedResponse,
        room: &mut EncodeBuffer,
    ) -> Result<(), BoxError> {
        room.write_all(&[WHOLE])?;
        whole.response.encode(room)
    }

    /// Writes a `Vary` index down.
    pub(super) fn encode_spec(
        vary_index: &VaryIndex,
        room: &mut EncodeBuffer,
    ) -> Result<(), BoxError> {
        room.write_all(&[SPEC])?;
        let (headers, body) = (HeaderMap::new(), Bytes::new());
        let (status, note) = (StatusCode::OK, vary_index.clone());
        KeptResponse { status, headers, body, trailers: None, note }.encode(room)
    }
}

impl<B> Codec<CacheAnswer<B>> for HttpCodec
where
    B: Send + 'static,
{
    type Kept = KeptAnswer<B>;

    fn id(&self) -> u8 {
        Self::CODEC
    }

    fn keep(&self, found: CacheAnswer<B>) -> KeptAnswer<B> {
        match found {
            CacheAnswer::CachedResponse(whole) => KeptAnswer::CachedResponse(whole),
            CacheAnswer::VaryIndex(vary_index) => KeptAnswer::VaryIndex(vary_index),
            CacheAnswer::Passthrough(passing) => KeptAnswer::passing(passing),
            CacheAnswer::Retry => KeptAnswer::Retry,
        }
    }

    fn restore(&self, kept: &KeptAnswer<B>, _: &CacheStatus) -> CacheAnswer<B> {
        kept.give()
    }

    fn classify(&self, kept: &KeptAnswer<B>) -> Cacheability {
        match kept {
            KeptAnswer::CachedResponse(whole) => match whole.disposition {
                Disposition::Keep(windows) => Cacheability::KeepFor(windows),
                Disposition::Share => NOT_KEPT,
                Disposition::Unconfirmed => Cacheability::Unconfirmed,
                Disposition::Failure => Cacheability::Failure,
            },
            KeptAnswer::VaryIndex(vary_index) => Cacheability::KeepFor(vary_index.windows()),
            KeptAnswer::Passthrough(slot) => {
                let passing = slot.lock().unwrap_or_else(PoisonError::into_inner);
                let is_own = passing.as_ref().is_some_and(|passing| passing.is_own);
                if is_own { Cacheability::PrivateOnce } else { Cacheability::PrivateKey }
            }
            KeptAnswer::Retry => NOT_KEPT,
        }
    }

    fn encode(&self, kept: &KeptAnswer<B>, room: &mut EncodeBuffer) -> Result<(), BoxError> {
        match kept {
            KeptAnswer::CachedResponse(whole) => Self::encode_whole(whole, room),
            KeptAnswer::VaryIndex(vary_index) => Self::encode_spec(vary_index, room),
            KeptAnswer::Passthrough(_) | KeptAnswer::Retry => {
                Err("there is nothing to be kept".into())
            }
        }
    }

    fn settle(&self, kept: KeptAnswer<B>, encoded: &Bytes) -> KeptAnswer<B> {
        let KeptAnswer::CachedResponse(whole) = &kept else { return kept };
        match KeptResponse::borrowing(&encoded.slice(1..)) {
            Ok(response) => KeptAnswer::CachedResponse(Arc::new(CachedResponse::new(
                response,
                whole.disposition,
                whole.said,
            ))),
            Err(_) => kept,
        }
    }

    fn weight(&self, kept: &KeptAnswer<B>, encoded: &Bytes) -> usize {
        match kept {
            KeptAnswer::CachedResponse(whole) => {
                size_of::<CachedResponse>() + whole.response.weight_of_fields()
            }
            _ => encoded.len(),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<KeptAnswer<B>, BoxError> {
        match bytes.split_first() {
            Some((&WHOLE, rest)) => {
                let response = KeptResponse::decode(rest)?;
                let whole =
                    CachedResponse::new(response, Disposition::Share, OriginInfo::default());
                Ok(KeptAnswer::CachedResponse(Arc::new(whole)))
            }
            Some((&SPEC, rest)) => {
                let KeptResponse { note: vary_index, .. } =
                    KeptResponse::<VaryIndex>::decode(rest)?;
                if vary_index.names.len() > MOST_NAMES {
                    return Err("a vary_index larger than any that is kept".into());
                }
                Ok(KeptAnswer::VaryIndex(Arc::new(vary_index)))
            }
            _ => Err("neither a response nor a vary_index".into()),
        }
    }
}

/// It is shared, and that is all.
const NOT_KEPT: Cacheability = Cacheability::KeepFor(Lifetimes::NONE);

const WHOLE: u8 = 1;

const SPEC: u8 = 2;

/// How many fields each answer has more than what is kept. With room for them from the start, the
/// copies that are given out need not grow.
const ADDED: usize = 2;

/// How many request fields a response may depend on.
const MOST_NAMES: usize = 16;

impl<B> fmt::Debug for CacheAnswer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CachedResponse(whole) => whole.fmt(f),
            Self::VaryIndex(vary_index) => vary_index.fmt(f),
            Self::Passthrough(passing) => write!(f, "Passthrough({})", passing.why),
            Self::Retry => f.write_str("Retry"),
        }
    }
}

/// Shows neither headers nor body.
impl fmt::Debug for CachedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedResponse")
            .field("status", &self.response.status)
            .field("disposition", &self.disposition)
            .finish_non_exhaustive()
    }
}

/// An empty body of any kind, as a 304 has.
pub(super) fn no_body<B>() -> CacheBody<B> {
    CacheBody::kept(Bytes::new(), None)
}
