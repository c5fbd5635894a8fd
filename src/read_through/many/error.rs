//! `ItemError`: why a batch loader has not answered a request.

use std::any::Any;
use std::sync::Arc;

use crate::error::{CacheError, CacheErrorKind, Error};

/// Why a batch loader has not answered a request. It is the error of batch items, and no caller
/// sees it: the load of an item ends with the loader's own error, or with one of the cache.
#[derive(Clone, Debug)]
pub(in crate::read_through) enum ItemError {
    /// The loader's error, for this request or for the whole call. If a call fails as a whole, all
    /// its requests share the error.
    Load(Arc<dyn Any + Send + Sync>),
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
    /// The loader's own error, or the error of the cache.
    pub(in crate::read_through) fn into_cause(
        self,
    ) -> Result<Arc<dyn Any + Send + Sync>, CacheError> {
        let (kind, message) = match self {
            Self::Load(error) => return Ok(error),
            Self::Lost => (
                CacheErrorKind::LoadLost,
                "the call of the batch loader was dropped before it ended (is the runtime going \
                 down?)"
                    .to_owned(),
            ),
            Self::WrongCount { asked, answered } => (
                CacheErrorKind::WrongCount,
                format!("the batch loader was asked for {asked} and gave {answered} answers"),
            ),
            Self::Panicked => {
                (CacheErrorKind::LoaderPanicked, "the batch loader panicked".to_owned())
            }
        };
        Err(CacheError::new(kind, message))
    }
}

/// The error of a caller: the loader's own one, where a batch item has it.
pub(super) fn flat<E: Send + Sync + 'static>(error: Error<ItemError>) -> Error<E> {
    let item = match error {
        Error::Load(item) => Arc::unwrap_or_clone(item),
        Error::Cache(error) => return Error::Cache(error),
    };
    match item.into_cause().map(Arc::downcast) {
        Ok(Ok(error)) => Error::Load(error),
        Ok(Err(_)) => Error::Cache(CacheError::new(
            CacheErrorKind::OtherType,
            "a load of another caller gave another type of error",
        )),
        Err(error) => Error::Cache(error),
    }
}

/// The error of a flight as a caller's type of error. A batch item takes any.
pub(in crate::read_through) fn own<E: Send + Sync + 'static>(
    error: Arc<dyn Any + Send + Sync>,
) -> Option<Arc<E>> {
    error.downcast().or_else(|error| as_any(ItemError::Load(error)).downcast()).ok()
}

fn as_any(error: ItemError) -> Arc<dyn Any + Send + Sync> {
    Arc::new(error)
}
