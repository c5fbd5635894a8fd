//! `FairLock`: a name that one claim has set, and a queue of its waiters.

use std::sync::Arc;
use std::time::Duration;

use bellwether::adapter::within;
use bellwether::{ConfigError, Key};

use super::scripted::{LockScripts, Scripted, by_scripts};
use super::{PRELUDE, millis, script, token};
use crate::{
    Attempt, Claim, Fenced, LocalQueues, Lock, LockError, LockFuture, Released, Renew, Request,
    Watch, Watchers,
};
use bellwether_redis_client::{RedisClientOptions, RedisScript};

/// A lock in one Redis server that is granted in the order in which it was asked for. A handle:
/// clones share one connection.
///
/// A claim that asks with [patience](Request::patience) while the lock is taken gets a place in a
/// queue, by the clock of the server. It keeps the place by asking again. A waiter that does not
/// ask for the [silence](FairLockOptions::silence) counts as dead and is skipped; the delays of dead waiters
/// do not add up. A claim that asks without patience gets no place, and is granted the lock only if
/// there are no waiters.
///
/// When the lock is freed, only the first waiter is told. [This page](super) says what is kept in
/// the server, what is not guaranteed, and what the user must be allowed to do.
///
/// Order costs throughput: a free lock is idle until the first waiter has taken it. Where no waiter
/// starves without order, a [`RedisLock`](crate::RedisLock) does more.
///
/// # Errors
/// Those of a [`RedisLock`](crate::RedisLock).
#[derive(Clone, Debug)]
pub struct FairLock {
    lock: Arc<Scripted>,
    silence: Duration,
}

impl FairLock {
    /// Connects with [`RedisClientOptions`](bellwether_redis_client::RedisClientOptions) or [`FairLockOptions`]. Makes sure
    /// that the server answers and allows what the scripts need.
    ///
    /// # Errors
    /// If an option is wrong, if the server or a node of the cluster cannot be reached or is not
    /// ready, if a single server is a replica or a node of a cluster, or if the user lacks a right.
    pub async fn connect(options: impl Into<FairLockOptions>) -> Result<Self, LockError> {
        let lock = Self::connect_lazily(options)?;
        lock.lock.prove(&lock).await?;
        Ok(lock)
    }

    /// A lock that connects when it is first used, for services that start before their Redis.
    ///
    /// # Errors
    /// If an option is wrong: the first one.
    pub fn connect_lazily(options: impl Into<FairLockOptions>) -> Result<Self, ConfigError> {
        let FairLockOptions { server, silence } = options.into();
        let library = [PRELUDE, include_str!("fair/prelude.lua")];
        let scripts = LockScripts {
            acquire: RedisScript::linked(
                concat!(include_str!("fair/take.lua"), include_str!("grant.lua")),
                &library,
                include_str!("fair/contested.lua"),
            ),
            renew: script(include_str!("renew.lua")),
            verify: script(include_str!("verify.lua")),
            release: RedisScript::linked("", &library, include_str!("fair/release.lua")),
            commands: COMMANDS,
        };
        Ok(Self { lock: Scripted::new(server, Watchers::default(), ":fair", scripts)?, silence })
    }

    /// The name whose change tells a waiter that it is its turn.
    fn call_name(&self, claim: &Claim) -> Vec<u8> {
        [&self.lock.name(claim.key()), &b":call:"[..], &token(claim)].concat()
    }

    /// The names of the queue and its times. They change all the time, so they are not watched.
    fn queue(&self, key: &Key) -> [Vec<u8>; 2] {
        let digest = key.digest();
        ["queue", "queue:seen"].map(|what| self.lock.client.names().unwatched_name(what, &digest))
    }
}

/// The server of a [`FairLock`](crate::FairLock), and the options of its queue.
///
/// ```no_run
/// # async fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use bellwether_lock::{FairLock, FairLockOptions};
///
/// let options = FairLockOptions::new("redis://127.0.0.1:6379", "shop")?.silence(Duration::from_secs(2));
/// let lock = FairLock::connect(options).await?;
/// # let _ = lock;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct FairLockOptions {
    server: RedisClientOptions,
    silence: Duration,
}

impl FairLockOptions {
    /// Options for an address and a namespace, as [`RedisClientOptions::new`] takes them.
    ///
    /// # Errors
    /// As there.
    pub fn new(url: &str, namespace: &str) -> Result<Self, ConfigError> {
        Ok(RedisClientOptions::new(url, namespace)?.into())
    }

    /// Sets after how long a silent waiter counts as dead, and loses its place.
    /// [`connect`](FairLock::connect) fails if it is not from 10 ms to 10 minutes.
    ///
    /// Default: 1 s. [`Locks`](crate::Locks) asks four times a second while it waits with a time
    /// limit, so a live waiter loses its place only if it misses three requests. When the waiters
    /// at the head of the queue have died, however many, a free lock is idle for this time and a
    /// quarter of a second at most. A caller that makes a number of tries, with a longer interval,
    /// has no place between them.
    pub fn silence(mut self, silence: Duration) -> Self {
        let [least, most] = [Duration::from_millis(10), Duration::from_secs(600)];
        let silence = within("silence of a waiter", silence, least, most);
        self.server.wrong.set(&mut self.silence, silence);
        self
    }
}

impl From<RedisClientOptions> for FairLockOptions {
    fn from(server: RedisClientOptions) -> Self {
        Self { server, silence: Duration::from_secs(1) }
    }
}

impl Lock for FairLock {
    by_scripts!(self, self.lock);

    fn acquire(&self, request: Request) -> LockFuture<Attempt> {
        let key = request.claim.key();
        let name = self.lock.name(key);
        let (told_of, silence) = if request.patience.is_zero() {
            (name.clone(), b"0".to_vec())
        } else {
            (self.call_name(&request.claim), millis(self.silence))
        };
        let [queue, times] = self.queue(key);
        let names = vec![told_of, name, queue, times];
        Box::pin(Arc::clone(&self.lock).acquire(request, names, silence))
    }

    fn release(&self, claim: Claim) -> LockFuture<Released> {
        let [queue, times] = self.queue(claim.key());
        let names = vec![self.lock.name(claim.key()), queue, times];
        Box::pin(Arc::clone(&self.lock).release(claim, names))
    }
}

impl Fenced for FairLock {}

/// The commands of the scripts.
const COMMANDS: &str = "get getex set pexpire pttl time del \
    zadd zcard zrange zrangebyscore zrank zrem zscore";
