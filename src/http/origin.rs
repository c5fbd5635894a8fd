//! `Origin`: what the layer needs of the service within.

use http::{Request, Response};
use tower::{BoxError, Service};

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
