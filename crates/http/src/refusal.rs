//! The error responses of the cache itself: 500, 502, 503 and 504.

use bellwether::BoxError;
use bellwether::adapter::warn_throttled;
use bellwether::{CacheError, CacheErrorKind, Error};
use bellwether_body::CacheBody;
use http::{Response, StatusCode};

use super::answer::refusal;
use super::report::Report;

/// 502: the origin gave no response. Its error is logged and not sent, since it may hold anything.
pub(super) fn of_origin<B>(error: &(dyn std::error::Error + 'static)) -> Response<CacheBody<B>> {
    warn_throttled!(target: "bellwether::http", %error, "the origin gave no response");
    refused(StatusCode::BAD_GATEWAY, "the origin gave no response\n", "origin-failed")
}

/// 504: the request says `only-if-cached`, and no suitable response is stored.
pub(super) fn not_kept<B>() -> Response<CacheBody<B>> {
    refused(StatusCode::GATEWAY_TIMEOUT, "no suitable response is stored\n", "only-if-cached")
}

/// 503: many requests for the same target, whose responses cannot be shared, are under way.
pub(super) fn too_many<B>() -> Response<CacheBody<B>> {
    refused(StatusCode::SERVICE_UNAVAILABLE, "too many requests are under way\n", "full")
}

/// 500: the key names a parameter that the route does not have.
pub(super) fn unknown<B>(name: &str) -> Response<CacheBody<B>> {
    let text = format!("the cache key names a parameter that this route does not have: {name:?}\n");
    refusal(StatusCode::INTERNAL_SERVER_ERROR, text, &Report::failed("misconfigured"))
}

/// The response for an error of a load, or of the cache.
pub(super) fn of<B>(error: &Error<BoxError>) -> Response<CacheBody<B>> {
    match error {
        Error::Load(error) => of_origin(&**error),
        Error::Cache(error) => of_cache(error),
    }
}

fn of_cache<B>(error: &CacheError) -> Response<CacheBody<B>> {
    let (status, text, reason) = reason(error);
    warn_throttled!(target: "bellwether::http", %error, "the cache answered with an error");
    refused(status, text, reason)
}

/// The status of an error of the cache, its text, and its reason in one word.
pub(super) fn reason(error: &CacheError) -> (StatusCode, &'static str, &'static str) {
    match error.kind() {
        CacheErrorKind::WaitTimedOut
        | CacheErrorKind::LoadTimedOut
        | CacheErrorKind::DeadlineExceeded => {
            (StatusCode::GATEWAY_TIMEOUT, "the response took too long\n", "timed-out")
        }
        CacheErrorKind::LoaderPanicked | CacheErrorKind::LoadLost => {
            (StatusCode::BAD_GATEWAY, "the origin gave no response\n", "origin-failed")
        }
        CacheErrorKind::LoadFailed(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "the origin failed a moment ago\n", "failed-recently")
        }
        CacheErrorKind::Contended => (
            StatusCode::SERVICE_UNAVAILABLE,
            "another caller requests the same response\n",
            "contended",
        ),
        CacheErrorKind::Full => {
            (StatusCode::SERVICE_UNAVAILABLE, "too many requests are under way\n", "full")
        }
        CacheErrorKind::Store(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "the store of the cache failed\n", "store-failed")
        }
        CacheErrorKind::NotFound => {
            (StatusCode::NOT_FOUND, "there is no such thing\n", "not-found")
        }
        // A key that is too long, no runtime, or a key that another layer uses for another type.
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "the cache is misconfigured\n", "misconfigured"),
    }
}

fn refused<B>(status: StatusCode, text: &'static str, reason: &str) -> Response<CacheBody<B>> {
    refusal(status, text, &Report::failed(reason))
}
