//! Entries: what a store keeps for a key. And values: the bytes of an entry, and what they decode to.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;

use crate::key::Digest;
use crate::lifetimes::Lifetimes;
use crate::tag::Tags;

/// An entry to be stored.
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct Draft {
    /// The loaded value.
    pub value: Value,
    /// The id of the codec of its value: see [`Codec::id`](crate::codec::Codec::id).
    pub codec: u8,
    /// Its ttl and stale windows.
    pub lifetimes: Lifetimes,
    /// How long the load took.
    pub load_time: Duration,
    /// How long ago, by the holder's monotonic clock, the lease was granted.
    pub lease_age: Duration,
    /// The tags that are known only after the load.
    pub tags: Tags,
    /// Whether storing it also invalidates its key, as a value that is put does. A store that repeats
    /// invalidations that a server has lost repeats this one. The default is no: a load that is lost is loaded
    /// again.
    pub invalidates: bool,
}

impl Draft {
    /// A value in the encoding of a codec, with its lifetimes.
    pub fn new(value: Value, codec: u8, lifetimes: Lifetimes) -> Self {
        let [load_time, lease_age] = [Duration::ZERO; 2];
        Self {
            value,
            codec,
            lifetimes,
            load_time,
            lease_age,
            tags: Tags::none(),
            invalidates: false,
        }
    }

    /// A marker instead of a value. It tells the callers that waited for the last answer why that
    /// answer is not there.
    pub fn marker(life: Duration, marker: Marker) -> Self {
        let bytes = match marker {
            Marker::PrivateKey => PRIVATE_KEY,
            Marker::PrivateOnce => PRIVATE_ONCE,
            Marker::Uncacheable => UNCACHEABLE,
        };
        Self::new(Value::new(Bytes::from_static(bytes)), MARKER, Lifetimes::fresh_for(life))
    }

    /// No value: storing it removes what is stored.
    pub(crate) fn nothing() -> Self {
        Self::new(Value::new(Bytes::new()), MARKER, Lifetimes::fresh_for(Duration::ZERO))
    }

    /// Whether there is a value, and neither nothing nor a marker.
    pub(crate) fn is_value(&self) -> bool {
        self.codec != MARKER
    }

    /// Sets the tags that are known only after the load, in addition to those of the
    /// [claim](crate::store::Claim::tags). With both there are at most [`Tags::MOST`].
    pub fn tagged(self, tags: Tags) -> Self {
        Self { tags, ..self }
    }

    /// The same entry, and storing it invalidates its key.
    pub fn invalidating(self) -> Self {
        Self { invalidates: true, ..self }
    }

    /// Notes how long the load took, and for how long its lease was held.
    pub fn timed(self, load_time: Duration, lease_age: Duration) -> Self {
        Self { load_time, lease_age, ..self }
    }

    /// The entry that a store makes of it: with its fence, the time at which it was stored by the
    /// store's clock (in microseconds since the Unix epoch), what is [left](Entry::remaining) of its life,
    /// and the epochs under which it was loaded, in the order of its tags.
    pub fn into_entry(
        self,
        fence: u64,
        stored_at: u64,
        remaining: Option<Duration>,
        epochs: Vec<TagEpoch>,
    ) -> Entry {
        let stored = Stored { draft: self, fence, stored_at, epochs, is_unwatched: false };
        Entry { stored: Arc::new(stored), remaining }
    }
}

/// A stored value with its metadata, as a store found it.
///
/// Clones share the value.
#[derive(Clone, Debug)]
pub struct Entry {
    stored: Arc<Stored>,
    remaining: Option<Duration>,
}

#[derive(Debug)]
struct Stored {
    draft: Draft,
    fence: u64,
    stored_at: u64,
    epochs: Vec<TagEpoch>,
    is_unwatched: bool,
}

/// Why the last answer for a key is not there.
///
/// A marker is for the callers that waited for that answer: it tells them not to wait for the next
/// one. Later callers ignore it and load under a lease, because one answer says nothing about the
/// answers to other requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Marker {
    /// The answer was private to its caller. The waiters load individually.
    PrivateKey,
    /// The same, but waiters may also wait for each other: see
    /// [`Cacheability::PrivateOnce`](crate::codec::Cacheability::PrivateOnce).
    PrivateOnce,
    /// The answer could be shared, but it is too large to be stored, or its bytes would not give it again. Each
    /// process loads without a lease.
    Uncacheable,
}

impl Entry {
    /// The loaded value.
    pub fn value(&self) -> &Value {
        &self.stored.draft.value
    }

    /// The id of the codec of its value: see [`Codec::id`](crate::codec::Codec::id).
    pub fn codec(&self) -> u8 {
        self.stored.draft.codec
    }

    /// Its ttl and stale windows, as they were when it was stored.
    pub fn lifetimes(&self) -> Lifetimes {
        self.stored.draft.lifetimes
    }

    /// How long the load took.
    pub fn load_time(&self) -> Duration {
        self.stored.draft.load_time
    }

    /// The fencing token of the lease under which it was stored.
    pub fn fence(&self) -> u64 {
        self.stored.fence
    }

    /// When it was stored, by the store's clock, in microseconds since the Unix epoch.
    pub fn stored_at(&self) -> u64 {
        self.stored.stored_at
    }

    /// Its tags, with the epochs under which it was loaded, in the order of the tags.
    pub fn epochs(&self) -> &[TagEpoch] {
        &self.stored.epochs
    }

    /// Its tags.
    pub fn tags(&self) -> Tags {
        Tags::of_entry(self.epochs().iter().map(|epoch| epoch.tag))
    }

    /// Whether it has all these tags.
    #[inline]
    pub fn has_tags(&self, tags: &Tags) -> bool {
        tags.iter().all(|tag| self.has_tag(tag))
    }

    /// Whether it has a tag.
    pub fn has_tag(&self, tag: &Digest) -> bool {
        self.epochs().binary_search_by_key(tag, |epoch| epoch.tag).is_ok()
    }

    /// What is left of its life in the store's time, including its stale window. None: it is fresh,
    /// and the lookup did not ask for how long, which saves a command.
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// The same entry with this much of its life left.
    #[inline]
    #[must_use]
    pub fn with_remaining(self, remaining: Option<Duration>) -> Self {
        Self { remaining, ..self }
    }

    /// Whether it is fresh: more of its life is left than its stale window.
    #[inline]
    pub fn is_fresh(&self) -> bool {
        self.stale_for().is_none()
    }

    /// How much longer it is fresh, if that is known. Zero if it is stale.
    #[inline]
    pub fn fresh_for(&self) -> Option<Duration> {
        self.remaining.map(|left| left.saturating_sub(self.lifetimes().stale()))
    }

    /// How long it has been stale. None while it is fresh.
    #[inline]
    pub fn stale_for(&self) -> Option<Duration> {
        self.lifetimes().stale().checked_sub(self.remaining?)
    }

    /// How long ago it was stored. Zero if what is left of its life is not known.
    pub(crate) fn age(&self) -> Duration {
        self.remaining.map_or(Duration::ZERO, |left| self.lifetimes().life().saturating_sub(left))
    }

    /// Whether it is stale and may be served while it is revalidated.
    pub fn serves_while_revalidating(&self) -> bool {
        self.stale_for().is_some_and(|stale| stale < self.stored.draft.lifetimes.while_revalidate())
    }

    /// Whether it is stale and may be served if its load fails.
    pub fn serves_if_error(&self) -> bool {
        self.stale_for().is_some_and(|stale| stale < self.stored.draft.lifetimes.if_error())
    }

    /// The same entry as a copy whose changes are not reported any more: it counts as stale for at least
    /// this long, and is served only if a load fails. None if its
    /// [`stale_if_error`](Lifetimes::if_error) has passed.
    pub fn unwatched(self, for_at_least: Duration) -> Option<Self> {
        let stale_for = self.stale_for().unwrap_or_default().max(for_at_least);
        let Stored { draft, fence, stored_at, epochs, .. } = &*self.stored;
        let lifetimes = draft.lifetimes.only_if_error();
        let left = lifetimes.stale().checked_sub(stale_for).filter(|left| !left.is_zero())?;
        let draft = Draft { lifetimes, ..draft.clone() };
        let (fence, stored_at, epochs) = (*fence, *stored_at, epochs.clone());
        let stored = Stored { draft, fence, stored_at, epochs, is_unwatched: true };
        Some(Self { stored: Arc::new(stored), remaining: Some(left) })
    }

    /// Whether it is a copy whose changes are [not reported](Self::unwatched) any more.
    pub(crate) fn is_unwatched(&self) -> bool {
        self.stored.is_unwatched
    }

    /// The marker, if there is one instead of a value.
    pub fn as_marker(&self) -> Option<Marker> {
        match &self.stored.draft.value.encoded()[..] {
            _ if self.stored.draft.codec != MARKER => None,
            PRIVATE_KEY => Some(Marker::PrivateKey),
            PRIVATE_ONCE => Some(Marker::PrivateOnce),
            _ => Some(Marker::Uncacheable),
        }
    }
}

/// The epoch of a tag under which a load began.
///
/// A store replaces the hard epoch of a tag when the tag is invalidated, and the soft one when it
/// is expired. It never gives one twice. So an entry whose hard epoch is not the current one is as
/// good as none, and an entry whose soft epoch is not the current one is stale. This holds even if
/// the store forgets a tag, because the tag gets a new epoch then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "stores make them of what they have read")]
pub struct TagEpoch {
    /// The tag.
    pub tag: Digest,
    /// The part that an invalidation replaces.
    pub hard: u64,
    /// The part that an invalidation or an expiry replaces.
    pub soft: u64,
}

/// A stored value: its bytes, and the decoded value once a caller has decoded it.
///
/// Clones share both. Those of an [`Entry`](super::Entry) share what one of them decodes, so a store in the
/// memory of the process decodes a value once.
#[derive(Clone)]
pub struct Value {
    encoded: Bytes,
    decoded: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// How many bytes of memory the decoded value takes, in addition to the encoded one.
    decoded_bytes: usize,
}

impl Value {
    /// A value that is not decoded yet. Its decoded form is taken to be as large as the bytes.
    pub fn new(encoded: Bytes) -> Self {
        let decoded_bytes = encoded.len();
        Self { encoded, decoded: OnceLock::new(), decoded_bytes }
    }

    /// A decoded value, with the bytes of memory that it takes in addition to the encoded one.
    pub(crate) fn of(
        encoded: Bytes,
        decoded: Arc<dyn Any + Send + Sync>,
        decoded_bytes: usize,
    ) -> Self {
        Self { encoded, decoded: OnceLock::from(decoded), decoded_bytes }
    }

    /// How many bytes of memory it takes, encoded and decoded.
    pub(crate) fn weight(&self) -> usize {
        self.encoded.len().saturating_add(self.decoded_bytes)
    }

    /// The bytes.
    pub fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    /// The decoded value, if it was decoded before, as a `T`.
    #[inline]
    pub(crate) fn decoded_as<T: Any>(&self) -> Option<&T> {
        self.decoded.get()?.downcast_ref()
    }

    /// Whether it was decoded before, as another type than `T`.
    pub(crate) fn is_of_another_type<T: Any>(&self) -> bool {
        self.decoded.get().is_some_and(|decoded| !decoded.is::<T>())
    }

    /// The decoded value. Runs `decode` unless the bytes were decoded before, as a `T`.
    pub(crate) fn decoded<T, E>(
        &self,
        decode: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<Arc<T>, E>
    where
        T: Any + Send + Sync,
    {
        if let Some(known) = self.decoded.get()
            && let Ok(known) = Arc::clone(known).downcast::<T>()
        {
            return Ok(known);
        }
        let decoded = Arc::new(decode(&self.encoded)?);
        // Another caller may have been faster, or may have decoded another type. Ours is as good.
        let _ = self.decoded.set(Arc::clone(&decoded) as Arc<dyn Any + Send + Sync>);
        Ok(decoded)
    }
}

/// Shows the length only.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({} bytes)", self.encoded.len())
    }
}

/// The codec id of markers.
const MARKER: u8 = 0;

const PRIVATE_KEY: &[u8] = b"private";

const PRIVATE_ONCE: &[u8] = b"own";

const UNCACHEABLE: &[u8] = b"unkept";
