//! `Origin`: what the layer needs of the service within.

use bellwether::BoxError;
use http::{Request, Response, StatusCode};
use tower::Service;

/// A service of HTTP of which there can be more than one, to be asked from anywhere.
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

/// Refuses a 304 to a request without conditions, as a failure of the origin: there is nothing that
/// it could be about, neither here nor at the client.
pub(super) fn check_not_modified(status: StatusCode, has_conditions: bool) -> Result<(), BoxError> {
    match status == StatusCode::NOT_MODIFIED && !has_conditions {
        true => Err("the origin answered 304 to a request without conditions".into()),
        false => Ok(()),
    }
}
