//! The Redis client under [`RedisStore`](crate::RedisStore), for other protocols on the same
//! servers.
//!
//! A protocol consists of [scripts](RedisScript) on names of a key. The client runs the scripts. It
//! connects, replaces broken connections, sets a timeout for each request, and stops requests to a
//! server that is down. It reports changes to [watches](RedisClient::watch). The Redis locks of
//! `bellwether-lock` use it.
//!
//! ```no_run
//! use bellwether::redis::{RedisClient, RedisRequest, RedisScript, RedisValue};
//! use bellwether::store::Watchers;
//! use bellwether::{Key, RedisOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let count = RedisScript::new(&["return redis.call('INCR', KEYS[1])"]);
//! let options = RedisOptions::new("redis://127.0.0.1:6379", "shop")?;
//! let client = RedisClient::new(options, [count.clone()], Watchers::default());
//! let key = Key::of("visits").with("front page");
//! let names = [client.name(&key.digest(), ":count")];
//! let request = RedisRequest::script(&count, names, [], "counting").of(&key);
//! let visits = client.run(&request, |reply| reply.whole()).await?;
//! # let _ = visits;
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "tls")]
pub use crate::store::redis::client::RedisTls;
pub use crate::store::redis::client::{CredentialsProvider, PasswordFile, RedisCredentials};
pub use crate::store::redis::client::{
    RedisClient, RedisRequest, RedisScript, RedisValue, ReplicatedWrites,
};
