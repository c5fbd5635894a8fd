//! Values: the bytes of an entry, and what they decode to.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

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
