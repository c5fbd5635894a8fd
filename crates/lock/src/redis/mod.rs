//! Locks in Redis (6.2 or later) or Valkey.
//!
//! | lock | where | fence | what it is for |
//! |---|---|---|---|
//! | [`RedisLock`] | one server | yes | the one to take if nothing speaks against it |
//! | [`ReentrantLock`] | one server | yes | owners that take it again while they hold it |
//! | [`FairLock`] | one server | yes | first come, first served |
//! | [`Redlock`] | a majority of servers | no | being available while some servers are not |
//!
//! Locks of different kinds do not exclude each other: each has names of its own for a key.
//!
//! Each has one connection to a server, of its own, with the settings of
//! [`RedisOptions`](bellwether::RedisOptions) but for those of hits: `connections`, `near` and `near_ttl`.
//!
//! # What is kept in the server
//! For a key that is held, one name that lives as long as the lease, and for a [`FairLock`] its
//! queue. After a release, nothing. For all keys of a namespace that share a hash slot, one number, the
//! mark: `bw:<namespace>:fence:{<tag>}`, in the slot of its keys, so at most 16,384 of them. It counts
//! the fences, from the server's time in microseconds when it was set first. So fences grow
//! over a restart without data, over a failover that has lost the last of them, and when the clock is
//! put back within [a day](FENCE_TTL) after the last grant; but not when both happen at once, as when
//! a replica is promoted that has not heard of the largest fence, and whose clock is behind as well.
//!
//! The server tracks the name of a key for as long as a caller waits for it. When the last waiter has
//! gone, it tracks none.
//!
//! # What a free lock costs
//! Taking it is one script of two commands, and giving it up another one. The first grant in a slot
//! sets the mark as well. A waiter pays for being
//! told: its question reads the name of the lock, so that the server tracks it.
//!
//! # Which names a script declares
//! All that it touches, so that servers which insist on it run the scripts, with two exceptions.
//! The name by which a [`FairLock`] calls one waiter: whose turn it is, only the script knows; it shares
//! the slot of the others, and where it is refused the waiter finds out by asking again. And
//! Redis before 7.2 tracks every declared name for a caller that is told that a lock is busy: the mark
//! and the queue are arguments there, or each waiter would be told of every change of a queue.
//!
//! # What they do not guarantee
//! A holder can lose a lease without knowing it yet: while it was stopped, or cut off, or when a
//! replica was promoted that had not heard of the grant. What must not be written by two at a time
//! has to refuse the smaller [fence](super::Fenced). A server should not evict (`noeviction`): what
//! has a life, as all locks have, is what it takes first.
//!
//! # How waiters are told
//! Who is told that a lock is busy has read its name by that answer, and the server tells when it
//! changes (RESP3 client tracking): one message to each process that waits, none for those that do
//! not, and no channel to be subscribed to before and after. It comes for an expiry and a
//! `FLUSHALL` as well as for a release, which a message published by the release would not.
//!
//! # How a holder hears of its own key
//! In the same way. A holder reads its name 0.1 s after the grant, and again after each message; what
//! it reads by is not its own write, so it is not told of that. Then it is told of a key that was
//! deleted, taken over, evicted or flushed within about a round trip, and of a connection that broke
//! as soon as there is another one. A [`Redlock`] looks at all nodes when any of them tells. A hold
//! that ends sooner costs no command for it, and leaves no name that the server tracks: a release
//! changes the name, which ends the tracking. A renewal changes it too, and costs one more look.
//! Over RESP2, and where `CLIENT TRACKING` is refused, a holder hears with its next renewal, a third
//! of the lease later.
//!
//! # What a user of the server must be allowed to do
//! `~bw:* +get +getex +set +del +incr +pexpire +pttl +time +evalsha +eval +hello +client|tracking`,
//! and for a [`ReentrantLock`] `+hgetall +hset +hdel`, and for a [`FairLock`] `+zadd +zrem +zcard
//! +zrank +zscore +zrange +zrangebyscore`.
//! With `+script|load` as well, the scripts are known before they are first needed.

mod fair;
mod redlock;
mod reentrant;
mod reply;
mod scripted;
mod single;

use std::time::Duration;

use bellwether::{Key, StoreError};
use uuid::Uuid;

pub use self::fair::FairLock;
pub use self::redlock::Redlock;
pub use self::reentrant::ReentrantLock;
pub use self::single::RedisLock;

use super::{Claim, Lock, Request};
use bellwether::redis::{RedisClient, RedisRequest, RedisScript};

/// How long the largest fence of a slot is remembered after the last grant: a day. A clock that
/// is put back is put back by less.
pub const FENCE_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// A script, after what stands before all of them.
fn script(parts: &[&str]) -> RedisScript {
    RedisScript::new(&[&[RedisScript::PRELUDE, PRELUDE], parts].concat())
}

/// What stands before the scripts of the locks.
const PRELUDE: &str = include_str!("prelude.lua");

fn token(claim: &Claim) -> Vec<u8> {
    claim.token().as_bytes().to_vec()
}

/// Whole milliseconds, at least one, as a life of none is refused.
fn millis(duration: Duration) -> Vec<u8> {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    millis.clamp(1, LONGEST_MS).to_string().into_bytes()
}

/// Does what will be done later, on a key that is not held: connects, and finds out what the server
/// refuses.
async fn prove(lock: &dyn Lock) -> Result<(), StoreError> {
    let claim = Claim::new(Key::of(CHECK).with(Uuid::new_v4()));
    let lease = Duration::from_secs(1);
    lock.acquire(Request::new(claim.clone(), lease).patient_for(lease)).await?;
    lock.release(claim).await?;
    Ok(())
}

/// Names two slots at once, for the renewal of what is not held: a node of a cluster says what it is.
async fn prove_single(client: &RedisClient, renew: &RedisScript) -> Result<(), StoreError> {
    let claim = Claim::new(Key::of(CHECK).with(Uuid::new_v4()));
    let other = Key::of(CHECK).with(0).digest();
    let names = [claim.key().digest(), other].map(|digest| client.name(&digest, ":check"));
    let args = [token(&claim), millis(Duration::ZERO)];
    let request = RedisRequest::script(renew, names, args, "connecting");
    client.run(&request, Some).await.map(drop)
}

const CHECK: &str = "bellwether.check";

/// Thousands of years, and a number that Lua does not round.
const LONGEST_MS: u64 = 1 << 50;
