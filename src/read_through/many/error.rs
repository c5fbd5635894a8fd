//! The errors of batches: why a request was not answered.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::iter::repeat_n;
use std::sync::Arc;

use crate::error::{BoxError, CacheError, CacheErrorKind, Error, SharedError};
use crate::read_through::error_rules::{ErrorFacts, ErrorRules};

/// Why a batch loader has not answered a request. It is the error of batch items, and no caller
/// sees it: the load of an item ends with the loader's own error, or with one of the cache.
#[derive(Clone, Debug)]
pub(in crate::read_through) enum ItemError {
    /// The loader's error, for this request or for the whole call, with what the program says about
    /// it. If a call fails as a whole, all its requests share the error.
    Load(Arc<dyn StdError + Send + Sync>, ErrorFacts),
    /// There is no answer, for another reason.
    Cache(CacheError),
}

/// The result of a call: an outcome for each of its requests, or one error for all of them.
type BatchResult<T, E> = Result<Vec<Result<T, E>>, E>;

impl ItemError {
    /// An outcome for each of the requests of a call, in their order. The outer error is a panic.
    pub(super) fn each<T, E: Into<BoxError> + Send + Sync + 'static>(
        loaded: Result<BatchResult<T, E>, Box<dyn Any + Send>>,
        asked: usize,
        rules: &ErrorRules,
    ) -> Vec<Result<T, Self>> {
        let load = |error: E| {
            let error = SharedError::new(error);
            let facts = rules.facts(&error);
            Self::Load(error.into_erased(), facts)
        };
        let error = match loaded {
            Ok(Ok(outcomes)) if outcomes.len() == asked => {
                return outcomes.into_iter().map(|outcome| outcome.map_err(load)).collect();
            }
            // Which request each belongs to is unknown, so none is used.
            Ok(Ok(outcomes)) => {
                let given = outcomes.len();
                let why =
                    format!("the batch loader was asked for {asked} and gave {given} answers");
                Self::Cache(CacheError::new(CacheErrorKind::WrongCount, why))
            }
            Ok(Err(error)) => load(error),
            Err(_) => Self::panicked(),
        };
        repeat_n(error, asked).map(Err).collect()
    }

    pub(super) fn panicked() -> Self {
        let kind = CacheErrorKind::LoaderPanicked;
        Self::Cache(CacheError::new(kind, "the batch loader panicked"))
    }

    /// The call was dropped before it ended, or could not begin: there is no tokio runtime, or the
    /// runtime is shutting down.
    pub(super) fn lost() -> Self {
        let message =
            "the call of the batch loader was dropped before it ended (is the runtime going down?)";
        Self::Cache(CacheError::new(CacheErrorKind::LoadLost, message))
    }

    pub(super) fn is_panic(&self) -> bool {
        matches!(self, Self::Cache(error) if error.kind() == CacheErrorKind::LoaderPanicked)
    }
}

impl fmt::Display for ItemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error, _) => error.fmt(f),
            Self::Cache(error) => error.fmt(f),
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
    match shared.get().cloned() {
        Some(ItemError::Load(error, facts)) => {
            let error = SharedError::erased(error);
            Error::Load(if facts.is_not_found() { error.not_found() } else { error })
        }
        Some(ItemError::Cache(error)) => Error::Cache(error),
        None => Error::Load(shared.retyped()),
    }
}
