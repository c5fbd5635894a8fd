//! Cache-stampede protection for [Tower](tower) services.
//!
//! When a thousand callers in fifty processes miss the same key at the same moment, **one** of them
//! loads it and all of them get the answer, as soon as it is there.

mod capture;
mod error;
mod flight;
mod key;
mod policy;
pub mod read_through;
mod status;
pub mod store;

pub use capture::{Capture, Json};
pub use error::{CacheError, CacheErrorKind, ConfigError, Error, StoreError, StoreErrorKind};
pub use key::{Digest, Key, KeyPart};
pub use policy::{Wait, WhenAbandoned};
pub use read_through::{Handle, ReadThrough, ReadThroughLayer, ResponseFuture, WithStatus};
pub use status::{Bypass, CacheStatus, Place};
pub use store::{MemoryStore, Store};
#[cfg(feature = "redis")]
pub use store::{RedisOptions, RedisStats, RedisStore};
