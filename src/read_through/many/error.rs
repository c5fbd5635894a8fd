//! `BatchError`: why a batch loader has not answered a request.

use std::error::Error as StdError;
use std::fmt;

use crate::shared_error::SharedError;

/// Why a batch loader has not answered a request.
///
/// For a request under a key, a panic of the loader is
/// [`LoaderPanicked`](crate::CacheErrorKind::LoaderPanicked), as for any loader.
#[non_exhaustive]
pub enum BatchError<E> {
    /// The loader's error, for this request or for the whole call. If a call fails as a whole, all
    /// its requests share the error.
    Load(SharedError<E>),
    /// The call was dropped before it ended, or could not begin: there is no tokio runtime, or the
    /// runtime is shutting down.
    Lost,
    /// The loader gave more or fewer answers than there were requests. Which request each belongs
    /// to is unknown, so none is used.
    WrongCount {
        /// How many requests it got.
        asked: usize,
        /// How many answers it gave.
        answered: usize,
    },
    /// The loader panicked, and the request has no key.
    Panicked,
}

impl<E> BatchError<E> {
    /// The loader's own error, if it gave one.
    pub fn load(&self) -> Option<&E>
    where
        E: StdError + 'static,
    {
        match self {
            Self::Load(error) => error.get(),
            _ => None,
        }
    }
}

impl<E> Clone for BatchError<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Load(error) => Self::Load(error.clone()),
            Self::Lost => Self::Lost,
            Self::WrongCount { asked, answered } => {
                Self::WrongCount { asked: *asked, answered: *answered }
            }
            Self::Panicked => Self::Panicked,
        }
    }
}

impl<E> fmt::Debug for BatchError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => f.debug_tuple("Load").field(error).finish(),
            Self::Lost => f.write_str("Lost"),
            Self::WrongCount { asked, answered } => {
                let mut shown = f.debug_struct("WrongCount");
                shown.field("asked", asked).field("answered", answered).finish()
            }
            Self::Panicked => f.write_str("Panicked"),
        }
    }
}

impl<E> fmt::Display for BatchError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Lost => f.write_str(
                "the call of the batch loader was dropped before it ended (is the runtime going \
                 down?)",
            ),
            Self::WrongCount { asked, answered } => {
                write!(f, "the batch loader was asked for {asked} and gave {answered} answers")
            }
            Self::Panicked => f.write_str("the batch loader panicked"),
        }
    }
}

/// The [`source`](StdError::source) is the loader's own error, which is in the message too.
impl<E> StdError for BatchError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Load(error) => Some(&**error),
            _ => None,
        }
    }
}
