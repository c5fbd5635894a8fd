//! `RedisLock`: a name that one claim has set.

use std::sync::Arc;
use std::time::Duration;

use bellwether::{ConfigError, Key};
use bellwether_redis_client::{RedisClientOptions, RedisScript, RedisValue};

use super::batches::Batches;
use super::scripted::{LockScripts, Scripted, by_scripts};
use super::{PRELUDE, millis, reply, script, token};
use crate::{
    Attempt, Fenced, Holder, LocalQueues, Lock, LockError, LockFuture, Released, Request, TakeOver,
};
use bellwether::store::{Claim, Renew, Watch, Watchers};

/// A lock in one Redis server or cluster. A handle: clones share one connection to each server.
///
/// The claim that has set the name holds the key, as long as its lease. Only the claim's token can
/// release it. Each operation is one round trip. Claims that ask at the same time share a script;
/// one that finds its lock taken like that asks once more, alone. [This page](super) says what is
/// kept in the server, what is not guaranteed, and what the user must be allowed to do.
///
/// ```no_run
/// # async fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use bellwether_lock::redis::RedisClientOptions;
/// use bellwether_lock::RedisLock;
///
/// let options = RedisClientOptions::new("redis://127.0.0.1:6379", "shop")?;
/// let lock = RedisLock::connect(options).await?;
/// # let _ = lock;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// An operation fails after its [timeout](RedisClientOptions::timeout). A server that is
/// [down](RedisClientOptions::down_after) is not asked, and operations fail at once.
#[derive(Clone)]
pub struct RedisLock(Arc<SingleLock>);

struct SingleLock {
    lock: Arc<Scripted>,
    /// Shared by the requests that are under way.
    under_way: Arc<()>,
    takes: Batches<2>,
    releases: Batches<1>,
}

impl RedisLock {
    /// Connects. Makes sure that the server answers and allows what the scripts need.
    ///
    /// # Errors
    /// If an option is wrong, if the server or a node of the cluster cannot be reached or is not
    /// ready, if a single server is a replica or a node of a cluster, or if the user lacks a right.
    pub async fn connect(options: RedisClientOptions) -> Result<Self, LockError> {
        let lock = Self::connect_lazily(options)?;
        lock.0.lock.prove(&lock).await?;
        Ok(lock)
    }

    /// A lock that connects when it is first used, for services that start before their Redis.
    ///
    /// # Errors
    /// If an option is wrong: the first one.
    pub fn connect_lazily(options: RedisClientOptions) -> Result<Self, ConfigError> {
        let scripts = LockScripts {
            acquire: RedisScript::linked(
                concat!(include_str!("take.lua"), include_str!("grant.lua")),
                &[PRELUDE],
                include_str!("contested.lua"),
            ),
            renew: script(include_str!("renew.lua")),
            verify: script(include_str!("verify.lua")),
            release: RedisScript::linked(include_str!("release.lua"), &[], TOLD),
            commands: "get getex set pttl time del",
        };
        let take_many = RedisScript::new(include_str!("take_many.lua"));
        let release_many = RedisScript::linked(include_str!("release_many.lua"), &[], TOLD);
        let lock = Scripted::new(options, Watchers::default(), ":lock", scripts)?;
        let (client, counter) = (&lock.client, lock.counter.clone());
        let takes = Batches::new(client.clone(), take_many, counter, "taking locks");
        let releases = Batches::new(client.clone(), release_many, None, "freeing locks");
        Ok(Self(Arc::new(SingleLock { lock, under_way: Arc::default(), takes, releases })))
    }
}

impl SingleLock {
    async fn acquire(self: Arc<Self>, request: Request) -> Result<Attempt, LockError> {
        let caller = Arc::clone(&self.under_way);
        let key = request.claim.key();
        if Arc::strong_count(&caller) > LARGE + 1 && !request.is_repeated {
            let args = [token(&request.claim), millis(request.lease)];
            let fence = self.takes.ask(self.lock.name(key), args).await?;
            let granted = fence.and_then(|fence| reply::attempt(RedisValue::Int(fence)));
            if let Some(granted) = granted {
                return Ok(granted);
            }
        }
        let names = vec![self.lock.name(key)];
        Arc::clone(&self.lock).acquire(request, names, Vec::new()).await
    }

    async fn release(self: Arc<Self>, claim: Claim) -> Result<Released, LockError> {
        let caller = Arc::clone(&self.under_way);
        if Arc::strong_count(&caller) > LARGE + 1 {
            let name = self.lock.name(claim.key());
            let freed = self.releases.ask(name, [token(&claim)]).await?;
            let freed = freed.and_then(|freed| reply::released(RedisValue::Int(freed)));
            if let Some(freed) = freed {
                return Ok(freed);
            }
        }
        let name = self.lock.name(claim.key());
        Arc::clone(&self.lock).release(claim, vec![name]).await
    }
}

impl Lock for RedisLock {
    by_scripts!(self, self.0.lock);

    fn acquire(&self, request: Request) -> LockFuture<Attempt> {
        Box::pin(Arc::clone(&self.0).acquire(request))
    }

    fn release(&self, claim: Claim) -> LockFuture<Released> {
        Box::pin(Arc::clone(&self.0).release(claim))
    }
}

impl Fenced for RedisLock {}

impl TakeOver for RedisLock {
    fn take_over(&self, request: Request, from: Holder) -> LockFuture<Attempt> {
        let from = [from.grant.to_be_bytes(), from.renewed_at.to_be_bytes()].concat();
        let names = vec![self.0.lock.name(request.claim.key())];
        Box::pin(Arc::clone(&self.0.lock).acquire(request, names, from))
    }
}

/// With fewer other requests under way, a batch has too few of them to pay for its task.
const LARGE: usize = 4;

/// The end of the scripts that release locks, for locks with marks.
const TOLD: &str = include_str!("told.lua");

bellwether::debug_fields! { RedisLock => |it| lock = it.0.lock }
