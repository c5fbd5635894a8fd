//! Entries: what is kept for a key.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;

use crate::lifetimes::Lifetimes;

/// A value as it is kept: its bytes, and beside them, once somebody has read them, what they mean.
///
/// Clones share both, so a store within the process gives out a value that is decoded once.
#[derive(Clone)]
pub struct Value(Arc<Inner>);

struct Inner {
    encoded: Bytes,
    decoded: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// How many bytes of memory what is decoded takes beside the encoded ones.
    beside: usize,
}

impl Value {
    /// A value of which only the bytes are known.
    pub fn new(encoded: Bytes) -> Self {
        let beside = encoded.len();
        Self(Arc::new(Inner { encoded, decoded: OnceLock::new(), beside }))
    }

    /// A value whose meaning is known already, and takes so many bytes beside the encoded ones.
    pub(crate) fn of(encoded: Bytes, decoded: Arc<dyn Any + Send + Sync>, beside: usize) -> Self {
        Self(Arc::new(Inner { encoded, decoded: OnceLock::from(decoded), beside }))
    }

    /// How many bytes of memory it takes: those that are encoded, and what they mean.
    pub(crate) fn weight(&self) -> usize {
        self.0.encoded.len().saturating_add(self.0.beside)
    }

    /// The bytes.
    pub fn encoded(&self) -> &Bytes {
        &self.0.encoded
    }

    /// What the bytes mean, if somebody has read them as a `T` first.
    #[inline]
    pub(crate) fn known<T: Any>(&self) -> Option<&T> {
        self.0.decoded.get()?.downcast_ref()
    }

    /// What the bytes mean, as a `T`, by `decode` if nobody has read them as a `T` yet.
    pub(crate) fn decoded<T, E>(
        &self,
        decode: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<Arc<T>, E>
    where
        T: Any + Send + Sync,
    {
        if let Some(known) = self.0.decoded.get()
            && let Ok(known) = Arc::clone(known).downcast::<T>()
        {
            return Ok(known);
        }
        let decoded = Arc::new(decode(&self.0.encoded)?);
        // Somebody may have been quicker, or have read it as another type; ours is as good.
        let _ = self.0.decoded.set(Arc::clone(&decoded) as Arc<dyn Any + Send + Sync>);
        Ok(decoded)
    }
}

/// Shows the length only.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({} bytes)", self.0.encoded.len())
    }
}

/// What is to be kept, before a store has it.
#[derive(Clone, Debug)]
pub struct Draft {
    /// What was loaded.
    pub(crate) value: Value,
    /// How `value` is encoded.
    pub(crate) codec: u8,
    /// For how long it is to be kept.
    pub(crate) lifetimes: Lifetimes,
    /// How long the load took.
    pub(crate) load_time: Duration,
    /// How long ago the lease was granted.
    pub(crate) lease_age: Duration,
}

impl Draft {
    /// Bytes in an encoding, to be kept for a while.
    pub fn new(value: Value, codec: u8, lifetimes: Lifetimes) -> Self {
        Self { value, codec, lifetimes, load_time: Duration::ZERO, lease_age: Duration::ZERO }
    }

    /// No value, but a mark that says why the last answer is not there, for those who waited for
    /// it.
    pub fn marker(life: Duration, how: Marker) -> Self {
        let bytes = match how {
            Marker::PrivateKey => PRIVATE,
            Marker::PrivateOnce => OWN,
            Marker::Uncacheable => UNKEPT,
        };
        Self::new(Value::new(Bytes::from_static(bytes)), MARKER, Lifetimes::fresh_for(life))
    }

    /// What was loaded.
    #[inline]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// How it is encoded: see [`Codec::id`](crate::Codec::id).
    #[inline]
    pub fn codec(&self) -> u8 {
        self.codec
    }

    /// For how long it is to be kept.
    pub fn lifetimes(&self) -> Lifetimes {
        self.lifetimes
    }

    /// How long the load took.
    pub fn load_time(&self) -> Duration {
        self.load_time
    }

    /// How long ago, by the holder's monotonic clock, the lease was granted.
    pub fn lease_age(&self) -> Duration {
        self.lease_age
    }

    pub(crate) fn timed(self, load_time: Duration, lease_age: Duration) -> Self {
        Self { load_time, lease_age, ..self }
    }

    /// The entry this becomes in a store: by which fence, stored when by the store's clock (in
    /// microseconds since the Unix epoch), and with how much of its life left.
    pub fn into_entry(self, fence: u64, stored_at: u64, remaining: Remaining) -> Entry {
        Entry { stored: Arc::new(Stored { draft: self, fence, stored_at }), remaining }
    }
}

/// What is kept for a key, as it was found.
///
/// Clones share what was stored.
#[derive(Clone)]
pub struct Entry {
    stored: Arc<Stored>,
    remaining: Remaining,
}

#[derive(Debug)]
struct Stored {
    draft: Draft,
    fence: u64,
    stored_at: u64,
}

/// Why the last answer for a key is not there.
///
/// A marker is for those who waited for that answer: they do not wait for the next one. Callers
/// that come later load under a lease as if it were not there, since one answer says nothing of
/// the answers to other requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Marker {
    /// It was for the caller that asked for it, and those who waited for it load for themselves.
    PrivateKey,
    /// The same, but they may also wait for each other: see
    /// [`Cacheability::PrivateOnce`](crate::Cacheability::PrivateOnce).
    PrivateOnce,
    /// It could be shared, but is too large to be kept, or cannot be written down. Each process
    /// loads without a lease.
    Uncacheable,
}

/// How much of an entry's life is left, in the store's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "stores make it, and there is no third way to know")]
pub enum Remaining {
    /// It is fresh; for how much longer was not asked, to spare a command.
    Fresh,
    /// This much, its stale window included.
    Known(Duration),
}

impl Entry {
    /// What was loaded.
    pub fn value(&self) -> &Value {
        &self.stored.draft.value
    }

    /// How it is encoded: see [`Codec::id`](crate::Codec::id).
    pub fn codec(&self) -> u8 {
        self.stored.draft.codec
    }

    /// For how long it was to be kept.
    pub fn lifetimes(&self) -> Lifetimes {
        self.stored.draft.lifetimes
    }

    /// How long the load took.
    pub fn load_time(&self) -> Duration {
        self.stored.draft.load_time
    }

    /// The fence of the lease by which it was stored.
    pub fn fence(&self) -> u64 {
        self.stored.fence
    }

    /// When it was stored, by the store's clock, in microseconds since the Unix epoch.
    pub fn stored_at(&self) -> u64 {
        self.stored.stored_at
    }

    /// How much of its life is left.
    pub fn remaining(&self) -> Remaining {
        self.remaining
    }

    /// The same entry, when this much of its life is left.
    #[inline]
    pub(crate) fn with_remaining(self, remaining: Remaining) -> Self {
        Self { remaining, ..self }
    }

    /// Whether it is fresh: whether more of its life is left than its stale window.
    #[inline]
    pub fn is_fresh(&self) -> bool {
        match self.remaining {
            Remaining::Fresh => true,
            Remaining::Known(remaining) => remaining > self.stored.draft.lifetimes.stale(),
        }
    }

    /// How much longer it is fresh, if that is known.
    #[inline]
    pub fn fresh_for(&self) -> Option<Duration> {
        match self.remaining {
            Remaining::Fresh => None,
            Remaining::Known(remaining) => {
                Some(remaining.saturating_sub(self.stored.draft.lifetimes.stale()))
            }
        }
    }

    /// How long it has been stale: none while it is fresh.
    pub fn stale_for(&self) -> Option<Duration> {
        match self.remaining {
            Remaining::Known(remaining) if !self.is_fresh() => {
                Some(self.stored.draft.lifetimes.stale().saturating_sub(remaining))
            }
            _ => None,
        }
    }

    /// Whether it is stale, and may be given out while it is loaded anew.
    pub fn serves_while_revalidating(&self) -> bool {
        self.stale_for().is_some_and(|stale| stale < self.stored.draft.lifetimes.while_revalidate())
    }

    /// Whether it is stale, and may be given out if it cannot be loaded anew.
    pub fn serves_if_error(&self) -> bool {
        self.stale_for().is_some_and(|stale| stale < self.stored.draft.lifetimes.if_error())
    }

    /// Why there is no value here, if it is a mark that there is none to be kept.
    pub fn as_marker(&self) -> Option<Marker> {
        match &self.stored.draft.value.encoded()[..] {
            _ if self.stored.draft.codec != MARKER => None,
            PRIVATE => Some(Marker::PrivateKey),
            OWN => Some(Marker::PrivateOnce),
            _ => Some(Marker::Uncacheable),
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stored { draft, fence, stored_at } = &*self.stored;
        f.debug_struct("Entry")
            .field("draft", draft)
            .field("fence", fence)
            .field("stored_at", stored_at)
            .field("remaining", &self.remaining)
            .finish()
    }
}

/// The encoding of a marker.
const MARKER: u8 = 0;

const PRIVATE: &[u8] = b"private";

const OWN: &[u8] = b"own";

const UNKEPT: &[u8] = b"unkept";
