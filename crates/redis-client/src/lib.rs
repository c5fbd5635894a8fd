//! A client of Redis and Valkey servers, for protocols made of scripts.
//!
//! [`RedisClient`] runs [scripts](RedisScript), replaces broken connections, stops requests to a server that is down,
//! and reports changes to [watches](RedisClient::watch). `RedisStore` of `bellwether-redis` and the Redis locks of
//! `bellwether-lock` use it, and its API follows their needs.
//!
//! # Features
//! | feature | default | what it adds |
//! |---|---|---|
//! | `bb8` | no | `RedisPoolManager`, for pools |
//! | `tls` | no | `rediss://`: connections by TLS (`rustls`), with certificates of your own |

#![cfg_attr(docsrs, feature(doc_cfg))]
// Its only users are released with it.
#![allow(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod address;
mod batcher;
mod breaker;
mod client;
mod client_core;
mod cluster;
mod connection;
mod connector;
mod credentials;
mod dial;
mod names;
mod node;
mod node_state;
mod one_task;
mod options;
#[cfg(feature = "bb8")]
mod pool_manager;
mod request;
mod retry_pauses;
mod rights;
mod sentinel;
mod server_clock;
mod server_error;
mod server_stream;
mod shared_connection;
mod shared_task;
mod silence;
#[cfg(feature = "simulated-network")]
#[doc(hidden)]
pub mod simulated;
mod slots;
mod subscriber;
#[cfg(feature = "tls")]
mod tls;
mod url;
mod window;

pub use self::batcher::{BatchSender, BatchedRequest, Batcher};
pub use self::client::RedisClient;
pub use self::client_core::{ClientSetup, ServerEvent, ServerObserver, Tracking};
pub use self::credentials::{CredentialsProvider, RedisCredentials};
pub use self::names::Names;
pub use self::node_state::RedisNodeStats;
pub use self::one_task::OneTask;
pub use self::options::RedisClientOptions;
#[cfg(feature = "bb8")]
pub use self::pool_manager::{RedisPoolConnection, RedisPoolManager};
pub use self::request::{RedisRequest, RedisScript, whole};
pub use self::server_clock::{ServerClock, ServerTime};
pub use self::slots::{InSlot, Ownership, SlotOwners};
#[cfg(feature = "tls")]
pub use self::tls::RedisTls;
/// A reply of a Redis server, as redis-rs reads it.
pub use redis::Value as RedisValue;

#[cfg(test)]
mod tests;
