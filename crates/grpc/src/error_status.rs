//! Errors of the service and of the cache as statuses of gRPC.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;

use bellwether::BoxError;
use bellwether::{CacheError, CacheErrorKind, Error};
use bellwether_body::is_unreachable;
use tonic::{Code, Status};

/// The status of an error of the service behind the cache: its own if it has one, or else
/// `UNAVAILABLE`. Its message is not sent, since it may hold secrets.
pub(super) fn status_of(error: BoxError) -> Status {
    let is_of_source = is_unreachable(&*error);
    let mut status = Status::try_from_error(error).unwrap_or_else(|error| {
        tracing::debug!(%error, "the service behind the cache failed");
        Status::unavailable("the service failed")
    });
    if is_of_source {
        status.set_source(Arc::new(Unreachable));
    }
    status
}

/// Whether a status stands for a service that cannot be reached, for any request.
pub(super) fn is_of_source(status: &Status) -> bool {
    status.source().is_some_and(|source| source.is::<Unreachable>())
}

/// Marks the status of a service that cannot be reached, without its address.
#[derive(Debug)]
struct Unreachable;

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the service cannot be reached")
    }
}

impl std::error::Error for Unreachable {}

/// The status for a caller for which the cache has no answer.
pub(super) fn status_for_caller(error: &Error<Status>) -> Status {
    match error {
        Error::Load(error) => match error.get() {
            Some(status) => status.clone(),
            None => Status::internal("the service failed"),
        },
        Error::Cache(error) => Status::new(code(error), error.to_string()),
    }
}

fn code(error: &CacheError) -> Code {
    match error.kind() {
        CacheErrorKind::DeadlineExceeded | CacheErrorKind::LoadTimedOut => Code::DeadlineExceeded,
        CacheErrorKind::Full => Code::ResourceExhausted,
        CacheErrorKind::WaitTimedOut
        | CacheErrorKind::Contended
        | CacheErrorKind::LoadFailed(_)
        | CacheErrorKind::LoadLost
        | CacheErrorKind::Store(_) => Code::Unavailable,
        // A key that is too long, a loader that panicked, no runtime, or a key that another layer
        // uses for another type.
        _ => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_behind_an_error_is_sent_and_other_errors_are_hidden() {
        let status = status_of(Box::new(Status::not_found("no such thing")));
        assert_eq!((status.code(), status.message()), (Code::NotFound, "no such thing"));
        let status = status_of("password: secret".into());
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "the service failed"));
    }

    #[test]
    fn an_unreachable_service_is_distinguished_from_one_that_fails_a_request() {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(is_of_source(&status_of(Box::new(std::io::Error::other(refused())))));
        assert!(is_of_source(&status_of(refused().into())));
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(!is_of_source(&status_of(reset.into())));
        assert!(!is_of_source(&status_of(Box::new(Status::unavailable("no")))));
    }

    #[test]
    fn a_wait_limit_is_a_deadline_only_for_a_caller_that_has_one() {
        let code_of = |kind| status_for_caller(&CacheError::new(kind, "").into()).code();
        assert_eq!(code_of(CacheErrorKind::DeadlineExceeded), Code::DeadlineExceeded);
        assert_eq!(code_of(CacheErrorKind::WaitTimedOut), Code::Unavailable);
        assert_eq!(code_of(CacheErrorKind::LoaderPanicked), Code::Internal);
        assert_eq!(code_of(CacheErrorKind::Contended), Code::Unavailable);
    }
}
