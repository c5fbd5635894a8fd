//! In the place of `std::time` and `tokio::time`. No deadline passes.

use std::convert::Infallible;
use std::future::Future;

pub(crate) use real_std::time::Duration;
pub(crate) use real_tokio::time::Instant;

pub(crate) async fn timeout_at<F: Future>(
    _deadline: Instant,
    future: F,
) -> Result<F::Output, Infallible> {
    Ok(future.await)
}
