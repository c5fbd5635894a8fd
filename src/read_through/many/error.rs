//! `ItemError`: why a batch loader has not answered a request.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::error::{BoxError, CacheError, CacheErrorKind, Error};
use crate::read_through::error_rules::{ErrorFacts, ErrorRules};
use crate::shared_error::SharedError;

/// Why a batch loader has not answered a request. It is the error of batch items, and no caller
/// sees it: the load of an item ends with the loader's own error, or with one of the cache.
#[derive(Clone, Debug)]
pub(in crate::read_through) enum ItemError {
    /// The loader's error, for this request or for the whole call. If a call fails as a whole, all
    /// its requests share the error.
    Load(Arc<dyn StdError + Send + Sync>, ErrorFacts),
    /// The call was dropped before it ended, or could not begin: there is no tokio runtime, or the
    /// runtime is shutting down.
    Lost,
    /// The loader gave more or fewer answers than there were requests. Which request each belongs
    /// to is unknown, so none is used.
    WrongCount { asked: usize, answered: usize },
    /// The loader panicked.
    Panicked,
}

impl ItemError {
    /// An error of the loader, with what the program says about it.
    pub(super) fn load<E>(error: E, rules: &ErrorRules) -> Self
    where
        E: Into<BoxError> + Send + Sync + 'static,
    {
        let facts = rules.facts(&error);
        Self::Load(SharedError::new(error).into_erased(), facts)
    }

    /// The loader's own error, or the error of the cache.
    pub(in crate::read_through) fn into_cause(
        self,
    ) -> Result<(Arc<dyn StdError + Send + Sync>, ErrorFacts), CacheError> {
        let kind = match &self {
            Self::Load(error, facts) => return Ok((Arc::clone(error), facts.clone())),
            Self::Lost => CacheErrorKind::LoadLost,
            Self::WrongCount { .. } => CacheErrorKind::WrongCount,
            Self::Panicked => CacheErrorKind::LoaderPanicked,
        };
        Err(CacheError::new(kind, self.to_string()))
    }
}

impl fmt::Display for ItemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error, _) => error.fmt(f),
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

impl StdError for ItemError {}

/// The error of a caller: the loader's own one, where a batch item has it.
pub(super) fn flat<E>(error: Error<ItemError>) -> Error<E> {
    let shared = match error {
        Error::Load(shared) => shared,
        Error::Cache(error) => return Error::Cache(error),
    };
    match shared.get().cloned().map(ItemError::into_cause) {
        // It loaded individually.
        Some(Ok((error, facts))) if facts.is_not_found() => {
            Error::Load(SharedError::erased(error).not_found())
        }
        Some(Ok((error, _))) => Error::Load(SharedError::erased(error)),
        Some(Err(error)) => Error::Cache(error),
        // A flight has it of the item, as the loader's own.
        None => Error::Load(shared.retyped()),
    }
}
