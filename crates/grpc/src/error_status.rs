//! Errors of the service and of the cache as statuses of gRPC.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;

use bellwether::adapter::warn_throttled;
use bellwether::{BoxError, CacheError, CacheErrorKind, Error};
use bellwether_body::is_unreachable;
use tonic::{Code, Status};

/// The status of an error of the service behind the cache: its own if it has one, or else one
/// without its text.
pub(super) fn status_of(error: BoxError) -> Status {
    let is_of_source = is_unreachable(&*error);
    let mut status = status_in(&*error).unwrap_or_else(|| status_without_text(error));
    if is_of_source {
        status.set_source(Arc::new(Unreachable));
    }
    status
}

/// The status of an error that is not meant for callers, such as that of a connection. Its text is
/// logged and not sent, since it may hold secrets.
pub(super) fn status_without_text(error: BoxError) -> Status {
    warn_throttled!(target: "bellwether::grpc", %error, "the service behind the cache failed");
    let code = Status::try_from_error(error).map_or(Code::Unavailable, |status| status.code());
    Status::new(code, SERVICE_FAILED)
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
            None => Status::internal(SERVICE_FAILED),
        },
        Error::Cache(error) => status_of_cache(error),
    }
}

/// An error of a [`Cache`](bellwether::Cache) or of a service behind a layer, as a status of gRPC.
///
/// ```
/// use bellwether::Cache;
/// use bellwether_grpc::IntoStatus;
/// use tonic::Status;
/// # async fn query(sku: u64) -> Result<String, std::io::Error> { Ok(format!("item {sku}")) }
///
/// async fn item(items: &Cache<u64, String>, sku: u64) -> Result<String, Status> {
///     let item = items.get_or_load(sku, async move || query(sku).await).await;
///     item.map_err(IntoStatus::into_status)
/// }
/// # let _ = item;
/// ```
pub trait IntoStatus {
    /// The status: `NOT_FOUND` for an error of that [class](bellwether::ErrorClass); the loader's
    /// own status if its error is one or was caused by one; `UNAVAILABLE` for its other errors; and
    /// for errors of the cache as the [guide](crate::guide#statuses) says. The text of an error is
    /// logged and not sent.
    fn into_status(self) -> Status;
}

impl<E> IntoStatus for Error<E> {
    fn into_status(self) -> Status {
        let is_not_found = self.is_not_found();
        match self {
            Self::Cache(error) => error.into_status(),
            Self::Load(error) => status_in(&*error).unwrap_or_else(|| match is_not_found {
                true => Status::not_found(NOT_FOUND),
                false => {
                    warn_throttled!(target: "bellwether::grpc", %error, "a load failed");
                    Status::unavailable("the source failed")
                }
            }),
        }
    }
}

impl IntoStatus for CacheError {
    fn into_status(self) -> Status {
        status_of_cache(&self)
    }
}

/// The first status in the chain of an error.
fn status_in(error: &(dyn std::error::Error + 'static)) -> Option<Status> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(status) = error.downcast_ref::<Status>() {
            return Some(status.clone());
        }
        next = error.source();
    }
    None
}

/// The status of an error of the cache. Its text may name hosts, users and files, and a failure in
/// another process, so it is logged and not sent.
fn status_of_cache(error: &CacheError) -> Status {
    warn_throttled!(target: "bellwether::grpc", %error, "the cache has no answer");
    let (code, text) = reason(error.kind());
    Status::new(code, text)
}

fn reason(kind: CacheErrorKind) -> (Code, &'static str) {
    match kind {
        CacheErrorKind::DeadlineExceeded | CacheErrorKind::LoadTimedOut => {
            (Code::DeadlineExceeded, TOOK_TOO_LONG)
        }
        CacheErrorKind::WaitTimedOut => (Code::Unavailable, TOOK_TOO_LONG),
        CacheErrorKind::Full => (Code::ResourceExhausted, "too many requests are under way"),
        CacheErrorKind::NotFound => (Code::NotFound, NOT_FOUND),
        CacheErrorKind::Contended => (Code::Unavailable, "another caller requests the same answer"),
        CacheErrorKind::LoadFailed(_) => (Code::Unavailable, "the service failed a moment ago"),
        CacheErrorKind::LoadLost => (Code::Unavailable, SERVICE_FAILED),
        CacheErrorKind::LoaderPanicked => (Code::Internal, SERVICE_FAILED),
        CacheErrorKind::Store(_) => (Code::Unavailable, "the store of the cache failed"),
        // A key that is too long, no runtime, or a key that another layer uses for another type.
        _ => (Code::Internal, "the cache is misconfigured"),
    }
}

const SERVICE_FAILED: &str = "the service failed";

const TOOK_TOO_LONG: &str = "the answer took too long";

const NOT_FOUND: &str = "there is no such thing";

#[cfg(test)]
mod tests {
    use bellwether::store::StoreErrorKind;
    use bellwether::{FailureCause, SharedError};

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
    fn an_error_of_a_loader_is_its_own_status_or_none_of_its_text() {
        let own = Error::Load(SharedError::new(Status::aborted("again")));
        assert_eq!(own.into_status().code(), Code::Aborted);
        let other = std::io::Error::other("password: secret");
        let status = Error::Load(SharedError::new(other)).into_status();
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "the source failed"));
        let missing: Error<fmt::Error> =
            CacheError::new(CacheErrorKind::NotFound, "there is none").into();
        assert_eq!(missing.into_status().code(), Code::NotFound);
    }

    #[test]
    fn no_text_of_an_error_of_the_cache_is_sent() {
        let kinds = [
            CacheErrorKind::Contended,
            CacheErrorKind::DeadlineExceeded,
            CacheErrorKind::Full,
            CacheErrorKind::KeyTooLong,
            CacheErrorKind::LoadFailed(FailureCause::Error),
            CacheErrorKind::LoadLost,
            CacheErrorKind::LoadTimedOut,
            CacheErrorKind::LoaderPanicked,
            CacheErrorKind::NoRuntime,
            CacheErrorKind::NotFound,
            CacheErrorKind::Store(StoreErrorKind::Unreachable),
            CacheErrorKind::TooManyTags,
            CacheErrorKind::WaitTimedOut,
        ];
        for kind in kinds {
            let error = CacheError::new(kind, "db7.internal");
            let of_layer = status_for_caller(&error.clone().into());
            for status in [of_layer, error.into_status()] {
                let text = status.message();
                assert!(!text.is_empty() && !text.contains("db7"), "{kind:?}: {text}");
            }
        }
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
