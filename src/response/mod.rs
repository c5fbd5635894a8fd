//! Kept responses: head, body and trailers of one that is given out many times.

mod body;
#[cfg(feature = "http")]
mod collect;
mod joined;
mod kept;

pub use body::CacheBody;
#[cfg(feature = "grpc")]
pub(crate) use body::End;
#[cfg(feature = "http")]
pub(crate) use collect::{Collected, collect};
#[cfg(feature = "grpc")]
pub(crate) use joined::Joined;
pub(crate) use kept::KeptResponse;
