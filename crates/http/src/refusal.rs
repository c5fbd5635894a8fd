//! The error responses of the cache itself: 500, 502, 503 and 504.

use bellwether::adapter::warn_throttled;
use bellwether::{BoxError, CacheError, CacheErrorKind, Error};
use bellwether_body::CacheBody;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use super::report::Report;

/// 502: the origin gave no response. Its error is logged and not sent, since it may hold anything.
pub(super) fn of_origin<B>(error: &(dyn std::error::Error + 'static)) -> Response<CacheBody<B>> {
    warn_throttled!(target: "bellwether::http", %error, "the origin gave no response");
    refused(NO_RESPONSE)
}

/// 504: the request says `only-if-cached`, and no suitable response is stored.
pub(super) fn not_kept<B>() -> Response<CacheBody<B>> {
    let text = "no suitable response is stored\n";
    refused((StatusCode::GATEWAY_TIMEOUT, text, "only-if-cached"))
}

/// 503: many requests for the same target, whose responses cannot be shared, are under way.
pub(super) fn too_many<B>() -> Response<CacheBody<B>> {
    refused(FULL)
}

/// 500: the key names a parameter that the route does not have.
pub(super) fn unknown<B>(name: &str) -> Response<CacheBody<B>> {
    let text = format!("the cache key names a parameter that this route does not have: {name:?}\n");
    refusal(StatusCode::INTERNAL_SERVER_ERROR, text, "misconfigured")
}

/// The response for an error of a load, or of the cache.
pub(super) fn of<B>(error: &Error<BoxError>) -> Response<CacheBody<B>> {
    match error {
        Error::Load(error) => of_origin(&**error),
        Error::Cache(error) => {
            warn_throttled!(target: "bellwether::http", %error, "the cache answered with an error");
            refused(reason(error))
        }
    }
}

/// The status of an error, its text, and its reason in one word.
type RefusalReason = (StatusCode, &'static str, &'static str);

const NO_RESPONSE: RefusalReason =
    (StatusCode::BAD_GATEWAY, "the origin gave no response\n", "origin-failed");

const FULL: RefusalReason =
    (StatusCode::SERVICE_UNAVAILABLE, "too many requests are under way\n", "full");

/// What an error of the cache is told as.
pub(super) fn reason(error: &CacheError) -> RefusalReason {
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    match error.kind() {
        CacheErrorKind::WaitTimedOut
        | CacheErrorKind::LoadTimedOut
        | CacheErrorKind::DeadlineExceeded => {
            (StatusCode::GATEWAY_TIMEOUT, "the response took too long\n", "timed-out")
        }
        CacheErrorKind::LoaderPanicked | CacheErrorKind::LoadLost => NO_RESPONSE,
        CacheErrorKind::LoadFailed(_) => {
            (unavailable, "the origin failed a moment ago\n", "failed-recently")
        }
        CacheErrorKind::Contended => {
            (unavailable, "another caller requests the same response\n", "contended")
        }
        CacheErrorKind::Full => FULL,
        CacheErrorKind::Store(_) => {
            (unavailable, "the store of the cache failed\n", "store-failed")
        }
        CacheErrorKind::NotFound => {
            (StatusCode::NOT_FOUND, "there is no such thing\n", "not-found")
        }
        // A key that is too long, no runtime, or a key that another layer uses for another type.
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "the cache is misconfigured\n", "misconfigured"),
    }
}

fn refused<B>((status, text, reason): RefusalReason) -> Response<CacheBody<B>> {
    refusal(status, text, reason)
}

/// A response of the cache itself, which says why a request has no other.
fn refusal<B>(status: StatusCode, text: impl Into<Bytes>, reason: &str) -> Response<CacheBody<B>> {
    let mut response = Response::new(CacheBody::stored(text.into(), None));
    *response.status_mut() = status;
    let mut insert = |name, value| {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    };
    insert(header::CONTENT_TYPE, "text/plain; charset=utf-8");
    if [StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT].contains(&status) {
        insert(header::RETRY_AFTER, "1");
    }
    Report::failed(reason).add_to(&mut response);
    response
}
