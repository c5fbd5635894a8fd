//! Refusals: the answers to requests that cannot be answered.

use bellwether::BoxError;
use bellwether::adapter::warn_throttled;
use bellwether::{CacheError, CacheErrorKind, Error};
use bellwether_body::CacheBody;
use http::{Response, StatusCode};

use super::answer::refusal;
use super::report::Report;

/// The origin gave no answer. Its error is for the log: it may say anything.
pub(super) fn of_origin<B>(error: &BoxError) -> Response<CacheBody<B>> {
    warn_throttled!(%error, "the origin gave no answer");
    refused(StatusCode::BAD_GATEWAY, "the origin gave no answer\n", "origin-failed")
}

/// There is no answer that is kept, and no other is wanted.
pub(super) fn not_kept<B>() -> Response<CacheBody<B>> {
    refused(StatusCode::GATEWAY_TIMEOUT, "there is no answer that is kept\n", "only-if-cached")
}

/// The key names a parameter that the route does not have.
pub(super) fn unknown<B>(name: &str) -> Response<CacheBody<B>> {
    let said = format!("the key of this route names a parameter that it has not: {name:?}\n");
    refusal(StatusCode::INTERNAL_SERVER_ERROR, said, &Report::failed("misconfigured"))
}

/// The core gave no answer.
pub(super) fn of<B>(error: &Error<BoxError>) -> Response<CacheBody<B>> {
    match error {
        Error::Load(error) => of_origin(error),
        Error::Cache(error) => of_cache(error),
    }
}

fn of_cache<B>(error: &CacheError) -> Response<CacheBody<B>> {
    let (status, said, why) = match error.kind() {
        CacheErrorKind::WaitTimedOut
        | CacheErrorKind::LoadTimedOut
        | CacheErrorKind::DeadlineExceeded => {
            (StatusCode::GATEWAY_TIMEOUT, "it took too long\n", "timed-out")
        }
        CacheErrorKind::LoaderPanicked | CacheErrorKind::LoadLost => {
            (StatusCode::BAD_GATEWAY, "the origin gave no answer\n", "origin-failed")
        }
        CacheErrorKind::LoadFailed(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "the origin failed a moment ago\n", "failed-recently")
        }
        CacheErrorKind::Contended => {
            (StatusCode::SERVICE_UNAVAILABLE, "somebody else asks for it\n", "contended")
        }
        CacheErrorKind::Full => {
            (StatusCode::SERVICE_UNAVAILABLE, "there is no room for it\n", "full")
        }
        CacheErrorKind::Store(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "the store failed\n", "store-failed")
        }
        // A key that is too long, no runtime, another type under the key.
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "it cannot be asked for\n", "misconfigured"),
    };
    warn_throttled!(%error, "answered by an error");
    refused(status, said, why)
}

fn refused<B>(status: StatusCode, said: &'static str, why: &str) -> Response<CacheBody<B>> {
    refusal(status, said, &Report::failed(why))
}
