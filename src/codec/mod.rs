//! Codecs: how an answer becomes a value that is stored and given to many callers.

/// The methods of a codec that keeps answers as they are.
macro_rules! keeps_answers {
    () => {
        type Kept = Response;

        fn keep(&self, response: Response) -> Response {
            response
        }

        fn restore(&self, kept: &Response, _: &CacheStatus) -> Response {
            kept.clone()
        }

        fn restore_owned(&self, kept: Response, _: &CacheStatus) -> Response {
            kept
        }
    };
}

#[cfg(feature = "lz4")]
mod compressed;
mod fingerprint;
mod in_process;
mod length;
mod ruled;
mod serde_values;

use std::io;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

#[cfg(feature = "lz4")]
pub use self::compressed::Compressed;
pub use self::in_process::InProcess;
#[doc(hidden)]
pub use self::length::decoded_len;
pub use self::ruled::RuledCodec;
pub use self::serde_values::{Json, Postcard};

use crate::error::BoxError;
use crate::lifetimes::Lifetimes;
use crate::status::CacheStatus;
use crate::tag::Tag;

/// Turns an answer of the loader into a value that is stored and given to many callers, and back.
///
/// The [kept](Codec::Kept) value is shared: [`restore`](Codec::restore) makes a copy of it for each
/// waiter, and a store in the process holds that very value, so that a hit there decodes nothing.
///
/// | codec | what it keeps | as |
/// |---|---|---|
/// | [`Json`], the default | any [`SerdeValue`] | JSON, or postcard for what JSON would change |
/// | [`Postcard`] | the same | bytes without names, smaller and faster than JSON |
/// | `bellwether_grpc::Prost` (its feature `prost`) | messages of prost | protobuf |
/// | `Compressed` (the feature `lz4`) | what another codec keeps | its bytes, compressed |
/// | [`InProcess`] | any `Clone` value, such as an `Arc` | itself: it is never encoded |
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no codec for `{Response}`",
    label = "no codec for `{Response}`",
    note = "values are stored as JSON, unless `.codec(..)` names another way"
)]
pub trait Codec<Response>: Send + Sync + 'static {
    /// The part of an answer that is kept.
    type Kept: Send + Sync + 'static;

    /// The number of this codec, stored beside the bytes: an entry of another codec is a miss. This
    /// crate uses 1 to 63; 64 to 255 are for codecs of your own.
    fn id(&self) -> u8;

    /// Takes the part that is kept from an answer.
    fn keep(&self, response: Response) -> Self::Kept;

    /// Makes an answer of a kept value.
    fn restore(&self, kept: &Self::Kept, status: &CacheStatus) -> Response;

    /// As [`restore`](Codec::restore), of a value that no other caller shares. The provided method
    /// calls `restore`; write your own where that saves a copy.
    fn restore_owned(&self, kept: Self::Kept, status: &CacheStatus) -> Response {
        self.restore(&kept, status)
    }

    /// Whether an answer may be stored. Provided: it is stored with the lifetimes of the layer.
    fn classify(&self, _: &Self::Kept) -> Cacheability {
        Cacheability::Keep
    }

    /// The tags of an answer that are known only after its load. Provided: none.
    ///
    /// They are in addition to the [tags of the request](crate::service::ReadThroughLayerBuilder::tags). An answer
    /// with more than [`Tags::MOST`](crate::store::Tags::MOST) tags in all is shared by the waiters and not
    /// stored.
    fn tags(&self, _: &Self::Kept) -> Vec<Tag> {
        Vec::new()
    }

    /// Encodes a kept value for a store outside of the process.
    ///
    /// # Errors
    /// If this value cannot be encoded, or is larger than the buffer may become. The waiters get
    /// it, and it is not stored. If it is not too large, it counts as if it failed [`verify`](Self::verify).
    fn encode(&self, kept: &Self::Kept, buffer: &mut EncodeBuffer) -> Result<(), BoxError>;

    /// Decodes what `encode` wrote.
    ///
    /// # Errors
    /// If the bytes are not what `encode` writes: that entry counts as a miss.
    fn decode(&self, bytes: &[u8]) -> Result<Self::Kept, BoxError>;

    /// Whether encoded bytes give this value again. It is called before a value is stored, and a value
    /// that fails is not: the waiters get it, [`unfaithful`](crate::stats::CommitStats::unfaithful) counts
    /// it, and one warning names its type.
    ///
    /// A value of at most 4 KiB is always verified. Of larger ones, each cache verifies its first 32 and
    /// then one in 32; once one has failed, all.
    ///
    /// Provided: what the bytes give must encode to the same bytes, in any order, because maps have none.
    /// [`Json`] and [`Postcard`] compare all that both values say to serde.
    ///
    /// # Errors
    /// If they do not: why.
    fn verify(&self, _kept: &Self::Kept, encoded: &[u8]) -> Result<(), BoxError> {
        let mut again = EncodeBuffer::new(encoded.len());
        self.encode(&self.decode(encoded)?, &mut again)?;
        let sum =
            |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum + u64::from(*byte).pow(4));
        match again.bytes.len() == encoded.len() && sum(&again.bytes) == sum(encoded) {
            true => Ok(()),
            false => Err("it has other bytes when it is decoded and encoded again".into()),
        }
    }

    /// Whether a stored value and a loaded one are the same, for [audits](crate::stats::AuditStats). It is
    /// asked if their bytes differ. Provided: `None`, which says that they differ.
    fn is_same(&self, _stored: &Self::Kept, _loaded: &Self::Kept) -> Option<bool> {
        None
    }

    /// The form in which a store in the process holds a kept value beside its encoded bytes.
    /// Provided: the value as it is. Write your own where the value can borrow from those bytes, or
    /// where it keeps more memory alive than it needs.
    fn complete(&self, kept: Self::Kept, _encoded: &Bytes) -> Self::Kept {
        kept
    }

    /// How many bytes of memory that form takes beside the encoded bytes. A store in the process
    /// counts them. Provided: as many as the encoded bytes.
    fn weight(&self, _kept: &Self::Kept, encoded: &Bytes) -> usize {
        encoded.len()
    }
}

/// Whether an answer is stored, and which callers may share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cacheability {
    /// It is stored with the lifetimes of the layer.
    Keep,
    /// It is stored with lifetimes of its own. The layer's jitter shortens its ttl.
    KeepFor(Lifetimes),
    /// It says that there is no such thing (negative caching). It is stored for the layer's
    /// [`not_found_ttl`](crate::service::ReadThroughLayerBuilder::not_found_ttl), by default not at all: waiters
    /// share it.
    NotFound,
    /// It is private to its caller, and probably the next answers for this key are private, too. The
    /// waiters load individually, all at once. A stored entry is removed.
    ///
    /// After two such answers in a row, later callers of this process load without waiting: at most
    /// as many at once as there were such answers in a row. So a key whose answers are all private
    /// queues no caller after its first burst, and one private answer for a shared key causes no
    /// stampede. This ends with the first answer that can be shared, or when there was no private
    /// one for [`private_for`](crate::service::ReadThroughLayerBuilder::private_for).
    PrivateKey,
    /// It is private to its caller this once. The waiters load individually, later callers are
    /// coalesced as usual, and a stored entry stays.
    PrivateOnce,
    /// It counts as a failure of the source or of this one request. All callers get a stale answer
    /// if there is one. If not, the caller of that load gets this answer, and the others load again
    /// with another request. If that load fails too, they share its failure, and later
    /// callers get it during the cooldown.
    Failure,
    /// The same, but no later caller gets it, and no stale answer replaces it. In each process, its
    /// waiters share one more load, one process after another.
    Unconfirmed,
}

/// A buffer for an encoded answer with a bound, so that encoding a value that is too large ends
/// early.
pub struct EncodeBuffer {
    bytes: Vec<u8>,
    most: usize,
    /// The bound that it would have passed: its own, or that of a codec within another one.
    pub(crate) over: Option<usize>,
}

impl EncodeBuffer {
    /// A buffer for at most this many bytes.
    pub fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most, over: None }
    }

    /// Whether the encoder tried to write more than that.
    pub fn is_over(&self) -> bool {
        self.over.is_some()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.over = None;
    }

    /// The written bytes.
    pub fn into_bytes(mut self) -> Bytes {
        // It grew by doubling, and is stored for long.
        self.bytes.shrink_to_fit();
        self.bytes.into()
    }
}

/// Fails when the bound is reached.
impl io::Write for EncodeBuffer {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if more.len() > self.most - self.bytes.len() {
            self.over = Some(self.most);
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the answer is too large"));
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// The length only.
crate::debug_fields! { EncodeBuffer => |it| used = it.bytes.len() }

/// A value that serde can encode and decode: what [`Json`] and [`Postcard`] keep. Derive `Clone`,
/// `Serialize` and `Deserialize` for a type, and it is one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored: it needs `Clone`, `serde::Serialize` and `serde::Deserialize`",
    label = "not a value that can be stored",
    note = "`#[derive(Clone, serde::Serialize, serde::Deserialize)]`, for the types inside it too; it must own all \
            that it holds, and be `Send + Sync`",
    note = "to keep values of one process as they are, without serde: `Cache::in_process`"
)]
pub trait SerdeValue: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}

// Otherwise the compiler names the first trait of serde that is missing, and not the remedy.
#[diagnostic::do_not_recommend]
impl<T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> SerdeValue for T {}
