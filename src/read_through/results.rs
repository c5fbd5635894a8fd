//! The result of many operations, and the reason to serve a stale answer instead of an error.

use crate::error::{CacheError, CacheErrorKind, Error};
use crate::status::StaleReason;

/// The results of two operations as one. If one of them has failed, the error is one that is not
/// [kept](CacheError::is_kept), if there is one.
pub(super) fn combined<T>(
    one: Result<T, CacheError>,
    other: Result<T, CacheError>,
    add: impl FnOnce(T, T) -> T,
) -> Result<T, CacheError> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok(add(one, other)),
        (Err(kept), Err(error)) if kept.is_kept() => Err(error),
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
    }
}

/// The result of many operations: an error if one of them has failed. It is
/// [kept](CacheError::is_kept) only if those of all that have failed are.
///
/// # Errors
/// The first error that is not kept, or else one that is.
pub fn result_of_all(
    results: impl IntoIterator<Item = Result<(), CacheError>>,
) -> Result<(), CacheError> {
    let mut all = Ok(());
    for result in results {
        all = combined(all, result, |(), ()| ());
    }
    all
}

/// Why a stale answer is served instead of this error.
pub fn stale_reason<E>(error: &Error<E>) -> StaleReason {
    use CacheErrorKind::{Contended, DeadlineExceeded, Full, WaitTimedOut};
    match error.cache().map(CacheError::kind) {
        Some(Full) => StaleReason::NoRoom,
        Some(Contended | DeadlineExceeded | WaitTimedOut) => StaleReason::WaitRanOut,
        _ => StaleReason::LoadFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{StoreError, StoreErrorKind};
    use crate::key::Key;

    /// The result of an operation: an error, which is kept or not, or none.
    fn result(is_kept: Option<bool>) -> Result<(), CacheError> {
        let Some(is_kept) = is_kept else { return Ok(()) };
        let error = StoreError::new(StoreErrorKind::Unreachable, "down");
        let error = if is_kept { error.kept() } else { error };
        Err(CacheError::store(&Key::of("item"), &error))
    }

    /// Whether the error of these is kept.
    fn is_kept(results: &[Option<bool>]) -> Option<bool> {
        result_of_all(results.iter().copied().map(result)).err().map(|error| error.is_kept())
    }

    const KEPT: Option<bool> = Some(true);
    const LOST: Option<bool> = Some(false);
    const DONE: Option<bool> = None;

    #[test]
    fn the_error_of_many_is_kept_only_if_all_that_failed_are_in_any_order() {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        for order in orders {
            assert_eq!(is_kept(&order.map(|nth| [KEPT, LOST, DONE][nth])), LOST, "{order:?}");
            assert_eq!(is_kept(&order.map(|nth| [KEPT, KEPT, DONE][nth])), KEPT, "{order:?}");
        }
        assert_eq!(is_kept(&[DONE, DONE]), DONE);
    }

    #[test]
    fn what_was_done_is_added_up_only_without_an_error() {
        let failed = || result(KEPT).map(|()| 1);
        let add = |one, other| one + other;
        assert_eq!(combined(Ok(1), Ok(2), add).ok(), Some(3));
        assert!(combined(failed(), Ok(2), add).is_err());
        assert!(combined(Ok(1), failed(), add).is_err());
    }

    #[test]
    fn a_bound_that_was_reached_is_no_failure_of_the_load() {
        let key = Key::of("item");
        let of = |error: CacheError| stale_reason(&Error::<StoreError>::from(error));
        assert_eq!(of(CacheError::full(&key, 1, "callers wait")), StaleReason::NoRoom);
        assert_eq!(of(CacheError::load_lost(&key)), StaleReason::LoadFailed);
        for kind in [
            CacheErrorKind::Contended,
            CacheErrorKind::DeadlineExceeded,
            CacheErrorKind::WaitTimedOut,
        ] {
            assert_eq!(of(CacheError::new(kind, "late".to_owned())), StaleReason::WaitRanOut);
        }
    }
}
