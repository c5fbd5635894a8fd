//! In the place of `tokio::runtime`. No thread of these tests is in one.

pub(crate) use real_tokio::runtime::{Handle, Id};
