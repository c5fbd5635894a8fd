//! `ReentrantLock`: a hash that counts the holds of one owner.

use std::sync::Arc;
use std::time::Duration;

use bellwether::{ConfigError, Key};
use bellwether_redis_client::{RedisClientOptions, RedisScript, RedisValue, whole};

use super::PRELUDE;
use super::scripted::{LockScripts, Scripted, by_scripts};
use crate::{
    Attempt, Claim, Fenced, LocalQueues, Lock, LockError, LockFuture, Reentrant, Released, Renew,
    Request, Watch, Watchers,
};

/// A lock in one Redis server that its [owner](Request::owner) may take again while it holds it. A
/// handle: clones share one connection.
///
/// An owner is logical: neither a thread, nor a task, nor a connection. Each of its claims is
/// one hold, with a lease of its own. The lock is free when every hold has been released or its
/// lease has ended. So a hold that is not released keeps the lock for its own lease only, however
/// often other holds are renewed. All holds from the first to the last have one fence.
///
/// [This page](super) says what is kept in the server, what is not guaranteed, and what the user
/// must be allowed to do.
///
/// # Errors
/// Those of a [`RedisLock`](crate::RedisLock).
#[derive(Clone, Debug)]
pub struct ReentrantLock {
    lock: Arc<Scripted>,
    count: RedisScript,
}

impl ReentrantLock {
    /// Connects. Makes sure that the server answers and allows what the scripts need.
    ///
    /// # Errors
    /// If an option is wrong, if the server or a node of the cluster cannot be reached or is not
    /// ready, if a single server is a replica or a node of a cluster, or if the user lacks a right.
    pub async fn connect(options: RedisClientOptions) -> Result<Self, LockError> {
        let lock = Self::connect_lazily(options)?;
        lock.lock.prove(&lock).await?;
        Ok(lock)
    }

    /// A lock that connects when it is first used, for services that start before their Redis.
    ///
    /// # Errors
    /// If an option is wrong: the first one.
    pub fn connect_lazily(options: RedisClientOptions) -> Result<Self, ConfigError> {
        let ours = |text| RedisScript::linked("", &[PRELUDE, include_str!("prelude.lua")], text);
        let scripts = LockScripts {
            acquire: ours(include_str!("acquire.lua")),
            renew: ours(include_str!("renew.lua")),
            verify: ours(include_str!("verify.lua")),
            release: ours(include_str!("release.lua")),
            commands: "getex set pexpire pttl time del hgetall hset hdel",
        };
        let count = ours(include_str!("count.lua"));
        let lock = Scripted::new(options, Watchers::default(), ":holds", scripts)?;
        Ok(Self { lock, count })
    }

    /// How many holds of a key there are now, of any owner.
    ///
    /// # Errors
    /// Those of the other operations.
    pub fn holds(&self, key: Key) -> LockFuture<u64> {
        let lock = Arc::clone(&self.lock);
        let count = self.count.clone();
        let read = |count: RedisValue| whole(&count);
        Box::pin(async move { lock.ask(&count, &key, Vec::new(), "reading the lock", read).await })
    }
}

impl Lock for ReentrantLock {
    by_scripts!(self, self.lock);

    fn acquire(&self, request: Request) -> LockFuture<Attempt> {
        let names = vec![self.lock.name(request.claim.key())];
        let owner = request.owner.as_bytes().to_vec();
        Box::pin(Arc::clone(&self.lock).acquire(request, names, owner))
    }

    fn release(&self, claim: Claim) -> LockFuture<Released> {
        let names = vec![self.lock.name(claim.key())];
        Box::pin(Arc::clone(&self.lock).release(claim, names))
    }
}

impl Fenced for ReentrantLock {}

impl Reentrant for ReentrantLock {}
