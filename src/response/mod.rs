//! Kept responses: head, body and trailers of one that is given out many times.

mod body;
mod collect;
mod kept;

pub use body::CacheBody;
pub(crate) use collect::{Collected, collect, joined};
pub(crate) use kept::{KeptResponse, Undecodable};
