//! A client of Redis and Valkey servers, for protocols made of scripts.
//!
//! A protocol consists of [scripts](RedisScript) on names. The client runs the scripts. It
//! connects, replaces broken connections, sets a timeout for each request, and stops requests to a
//! server that is down. It reports changes to [watches](RedisClient::watch). `RedisStore` of
//! `bellwether-redis` and the Redis locks of `bellwether-lock` use it.
//!
//! ```no_run
//! use bellwether::Key;
//! use bellwether_redis_client::{
//!     ClientSetup, RedisClient, RedisClientOptions, RedisRequest, RedisScript,
//! };
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let count = RedisScript::new("return redis.call('INCR', KEYS[1])");
//! let options = RedisClientOptions::new("redis://127.0.0.1:6379", "shop")?;
//! let setup = ClientSetup { scripts: [count.clone()].into(), ..ClientSetup::default() };
//! let client = RedisClient::new(options, setup);
//! let key = Key::of("visits").with("front page");
//! let names = [client.name(&key.digest(), ":count")];
//! let request = RedisRequest::script(&count, names, [], "counting").of(&key);
//! let visits = client.run(&request, |reply| reply.whole()).await?;
//! # let _ = visits;
//! # Ok(())
//! # }
//! ```
//!
//! # The way of a request
//! ```text
//! RedisClient::run ──► RedisNode::send ──► SharedConnection::send ──► Connection::send ──► redis
//!  server, or node     breaker,            timeout, reconnect,        hash or text,
//!  of a cluster        connection          once more if lost          end of the connection
//! ```
//!
//! A node has one connection, or several: each request says over which it goes. In a cluster, the node
//! of a request is the owner of the slot of its names.
//!
//! # Features
//! | feature | default | what it adds |
//! |---|---|---|
//! | `cluster` | no | `redis-cluster://`: Redis Cluster |
//! | `sentinel` | no | `redis+sentinel://`: the primary that sentinels name |
//! | `tls` | no | `rediss://`: connections by TLS (`rustls`), with certificates of your own |

// Its only users are released with it.
#![allow(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod address;
mod batcher;
mod breaker;
mod client;
#[cfg(feature = "cluster")]
mod cluster;
mod connect_error;
mod connection;
mod connector;
mod credentials;
mod destination;
mod dial;
mod events;
mod failovers;
mod lock;
mod login;
mod names;
mod node;
mod node_record;
mod options;
mod parts;
mod redirect;
mod request;
mod request_error;
mod retry_pauses;
mod rights;
mod script;
#[cfg(feature = "sentinel")]
mod sentinel;
mod server_clock;
mod server_group;
mod shared_connection;
mod slot;
mod stats;
mod subscriber;
#[cfg(feature = "tls")]
mod tls;
mod url;
mod value;

pub use self::batcher::{BatchSender, BatchedRequest, Batcher};
pub use self::client::{RedisClient, SlotGroup};
pub use self::credentials::{CredentialsProvider, RedisCredentials};
pub use self::events::{MessageReader, ServerEvent, ServerObserver, Tracking};
pub use self::options::RedisClientOptions;
pub use self::parts::ClientSetup;
pub use self::request::RedisRequest;
pub use self::script::RedisScript;
pub use self::server_clock::{ServerClock, ServerTime};
pub use self::slot::{InSlot, Ownership, SlotOwners};
pub use self::stats::RedisNodeStats;
#[cfg(feature = "tls")]
pub use self::tls::RedisTls;
pub use self::value::RedisValue;
