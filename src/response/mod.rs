//! Kept responses: head, body and trailers of one that is given out many times.

mod body;
mod joined;
mod kept;

pub use body::CacheBody;
pub(crate) use joined::joined;
pub(crate) use kept::KeptResponse;
