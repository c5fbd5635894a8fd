//! Locks in Redis (6.2 or later) or Valkey.
//!
//! | lock | where | fence | what it is for |
//! |---|---|---|---|
//! | [`RedisLock`] | one server or cluster | yes | the default choice |
//! | [`ReentrantLock`] | one server or cluster | yes | owners that take the key again while they hold it |
//! | [`FairLock`] | one server or cluster | yes | first come, first served |
//! | [`Redlock`] | a majority of independent servers | no | locking while some servers are down |
//!
//! Locks of different kinds do not exclude each other: each kind has names of its own for a key.
//!
//! In a cluster, the key of a lock is in one hash slot, and the node that owns the slot is its server.
//!
//! Each lock has one connection of its own to a server, with the settings of
//! [`RedisClientOptions`].
//!
//! # What is kept in the server
//! - For a key that is held: one name that lives as long as the lease, and for a [`FairLock`] its
//!   queue and a name for each waiter. Where the server reports no changes, the marks of the processes
//!   that wait, 16 bytes each. After a release, nothing.
//! - For all keys of a namespace: one counter of fences, `bw:<namespace>:fence:{<tag>}`. In a cluster,
//!   each hash slot has its own, so there are at most 16,384 of them.
//!
//! A fence is the server's time of its grant in microseconds, or one more than the counter if that is
//! not below the time. So fences grow over a restart without data or with older data, over a failover
//! that lost the last fences, and when the clock is put back within a day after the last
//! grant. They may not grow when both happen at once: when grants are lost, and the clock is behind as
//! well.
//!
//! The server tracks the name of a key as long as a caller waits for it. When the last waiter has
//! gone, it tracks none; if a waiter of a [`FairLock`] was killed, after four times the
//! [silence](crate::FairLockOptions::silence) at most.
//!
//! # What a free lock costs
//! Taking it is one script of three commands, and releasing it is another script. A waiter costs more:
//! its request reads the name of the lock, so that the server tracks it. Claims of one [`RedisLock`]
//! that ask at the same time share one script for up to 16 of them.
//!
//! # Which names a script declares
//! All names that it uses, for servers that insist on it, with two exceptions:
//! - The name by which a [`FairLock`] wakes one waiter, because only the script knows the waiter.
//!   It is in the slot of the others. Where the server refuses it, the waiter finds out by asking
//!   again.
//! - Redis before 7.2 tracks every declared name for a caller that gets `busy`. So where a single
//!   server reports changes, the counter and the queue are arguments, or each waiter would be told of
//!   every change of a queue.
//!
//! # What they do not guarantee
//! A holder can lose a lease without knowing it yet: while it is stopped or cut off, or when a
//! replica is promoted that does not have the grant. A resource that must have one writer at a time
//! has to refuse the smaller [fence](super::Fenced). The server should not evict (`noeviction`): it
//! evicts names with an expiry first, and all locks have one.
//!
//! # How waiters are told
//! A caller that gets `busy` has read the lock's name by that answer, and the server reports the
//! next change (RESP3 client tracking). That is one message to each process that waits, none to
//! other processes, and no channel to subscribe to before and after. The message also comes for an
//! expiry and for a `FLUSHALL`; one that the release publishes would not.
//!
//! Over RESP2, and where the server or its user's permissions refuse `CLIENT TRACKING`, the release
//! publishes messages: a caller that gets `busy` leaves the mark of its process at the lock, and the
//! release publishes to the channels of these marks, in a [`FairLock`] to that of the next waiter.
//! The release of a lock without waiters publishes nothing. Each lock subscribes over one more
//! connection, when it connects or, if it connects lazily, when it first asks for a key. An expiry is
//! not announced: a waiter asks again at the end of the lease. A waiter asks again every 250 ms at
//! least, so a message that is lost delays it by no more. The waiters of a [`Redlock`] poll, and
//! those of a user that may not subscribe poll, too.
//!
//! # How a holder notices a loss
//! In the same way. A holder reads its name 0.1 s after the grant, and again after each message. It
//! subscribes by a read, so it is not told of that. So it learns within about a round trip that its
//! key was deleted, taken over, evicted or flushed. After a broken connection, it asks after 25 ms,
//! 50 ms and so on, up to 1 s. So it learns of a loss within about as much time after the server's return
//! as the server was down. A [`Redlock`] asks all nodes when any of them reports a change.
//!
//! A hold that ends within 0.1 s costs no further command. It leaves no tracked name: the release
//! changes the name, which ends the tracking. A renewal changes the name, too, and costs one more
//! read. Over RESP2, and where the server refuses `CLIENT TRACKING`, a holder learns of a loss with its
//! next renewal, a third of the lease later: messages are for waiters only.
//!
//! # What a user of the server must be allowed to do
//! All of them need `~bw:* +evalsha +eval +client|tracking`, and:
//!
//! | lock | commands in its scripts |
//! |---|---|
//! | [`RedisLock`] | `+get +getex +set +pttl +time +del` |
//! | [`FairLock`] | those of a `RedisLock`, and `+pexpire +zadd +zcard +zrange +zrangebyscore +zrank +zrem +zscore` |
//! | [`ReentrantLock`] | `+getex +set +pexpire +pttl +time +del +hgetall +hset +hdel` |
//! | [`Redlock`] | `+get +getex +set +pttl +del`, on each node |
//!
//! `connect` names what is missing of these. Without `+client|tracking`, waiters are told by messages if the user has `&bw:*
//! +subscribe +publish`, and poll otherwise; `connect` names `+publish` if only that is missing. A cluster
//! needs `+cluster|slots +asking` as well, Sentinel `+role`, and a database other than 0 `+select`.
//!
//! [`FairLock`]: crate::FairLock
//! [`RedisLock`]: crate::RedisLock
//! [`Redlock`]: crate::Redlock
//! [`ReentrantLock`]: crate::ReentrantLock

mod batches;
pub(crate) mod fair;
pub(crate) mod redlock;
pub(crate) mod reentrant;
mod reply;
mod scripted;
pub(crate) mod single;

use std::time::Duration;

use super::Claim;
use bellwether_redis_client::RedisScript;

#[cfg(feature = "tls")]
pub use bellwether_redis_client::RedisTls;
pub use bellwether_redis_client::{CredentialsProvider, RedisClientOptions, RedisCredentials};

/// A script with the functions of all locks.
fn script(text: &str) -> RedisScript {
    RedisScript::linked("", &[PRELUDE], text)
}

/// The functions of the scripts of the locks.
const PRELUDE: &str = include_str!("prelude.lua");

fn token(claim: &Claim) -> Vec<u8> {
    claim.token().as_bytes().to_vec()
}

/// Whole milliseconds, at least one: the server refuses an expiry of zero.
fn millis(duration: Duration) -> Vec<u8> {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    millis.clamp(1, LONGEST_MS).to_string().into_bytes()
}

/// Thousands of years, and a number that Lua does not round.
const LONGEST_MS: u64 = 1 << 50;
