//! Kept responses: head, body and trailers of one that is given out many times.

mod body;
#[cfg(feature = "http")]
mod collect;
#[cfg(feature = "http")]
mod follow;
mod joined;
mod kept;
mod unreachable;

pub use body::CacheBody;
#[cfg(feature = "grpc")]
pub(crate) use body::End;
#[cfg(feature = "http")]
pub(crate) use collect::{Collected, collect};
#[cfg(feature = "http")]
pub(crate) use follow::{Follow, Followed};
#[cfg(feature = "grpc")]
pub(crate) use joined::Joined;
pub(crate) use kept::KeptResponse;
pub(crate) use unreachable::is_unreachable;
