//! Kept responses: head, body and trailers of one that is given out many times.

mod body;
#[cfg(feature = "http")]
mod collect;
#[cfg(feature = "http")]
mod follow;
mod joined;
mod kept;
mod unreachable;

#[cfg(feature = "grpc")]
pub(crate) use body::BodyEnd;
pub use body::CacheBody;
#[cfg(feature = "http")]
pub(crate) use collect::{CollectedBody, collect};
#[cfg(feature = "http")]
pub(crate) use follow::{Follow, Followed};
#[cfg(feature = "grpc")]
pub(crate) use joined::JoinedFrames;
pub(crate) use kept::KeptResponse;
pub(crate) use unreachable::is_unreachable;
