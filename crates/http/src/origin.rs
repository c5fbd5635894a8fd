//! `Origin`: what the layer needs of the service behind it.

use bellwether::BoxError;
use http::{Request, Response, StatusCode};
use tower::Service;

/// An HTTP service that can be cloned, and whose clones can be called from any task.
pub(super) trait Origin<ReqB, B>:
    Service<Request<ReqB>, Response = Response<B>, Error: Into<BoxError>, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<S, ReqB, B> Origin<ReqB, B> for S where
    S: Service<Request<ReqB>, Response = Response<B>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// Takes a 304 to a request without conditions for a failure of the origin: neither the cache nor
/// the client has a response that it could be about.
pub(super) fn check_not_modified(status: StatusCode, has_conditions: bool) -> Result<(), BoxError> {
    match status == StatusCode::NOT_MODIFIED && !has_conditions {
        true => Err("the origin answered 304 to a request without conditions".into()),
        false => Ok(()),
    }
}
