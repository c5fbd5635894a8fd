//! In the place of `std::time` and `tokio::time`.

pub(crate) use real_std::time::Duration;
pub(crate) use real_tokio::time::Instant;
