//! The errors of batches: why a request was not answered.

use std::any::Any;
use std::iter::repeat_n;

use crate::error::{BoxError, CacheError, CacheErrorKind, Error};

/// The result of a call: an outcome for each of its requests, or one error for all of them.
type BatchResult<T, E> = Result<Vec<Result<T, E>>, E>;

/// An outcome for each of the requests of a call, in their order: they share the error of the call. The
/// outer error is a panic.
pub(super) fn each<T, E: Into<BoxError>>(
    loaded: Result<BatchResult<T, E>, Box<dyn Any + Send>>,
    asked: usize,
) -> Vec<Result<T, Error<E>>> {
    let error = match loaded {
        Ok(Ok(outcomes)) if outcomes.len() == asked => {
            return outcomes.into_iter().map(|outcome| outcome.map_err(Error::of)).collect();
        }
        // Which request each belongs to is unknown, so none is used.
        Ok(Ok(outcomes)) => {
            let given = outcomes.len();
            let why = format!("the batch loader was asked for {asked} and gave {given} answers");
            CacheError::new(CacheErrorKind::WrongCount, why).into()
        }
        Ok(Err(error)) => Error::of(error),
        Err(_) => panicked().into(),
    };
    repeat_n(error, asked).map(Err).collect()
}

pub(super) fn panicked() -> CacheError {
    CacheError::new(CacheErrorKind::LoaderPanicked, "the batch loader panicked")
}

/// The call was dropped before it ended, or could not begin: there is no tokio runtime, or the
/// runtime is shutting down.
pub(super) fn lost() -> CacheError {
    let message =
        "the call of the batch loader was dropped before it ended (is the runtime going down?)";
    CacheError::new(CacheErrorKind::LoadLost, message)
}
