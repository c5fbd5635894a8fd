//! `RedisLock`: a name that one claim has set.

use std::sync::Arc;
use std::time::Duration;

use bellwether::{ConfigError, Key, RedisOptions};

use super::scripted::{LockScripts, Scripted};
use super::{PRELUDE, prove, script};
use crate::{
    Attempt, Claim, Fenced, Holder, Lock, LockError, LockFuture, Released, Renew, Request,
};
use crate::{TakeOver, Watch};
use bellwether::redis::RedisScript;

/// A lock in one Redis server. A handle: clones share one connection.
///
/// The claim that has set the name holds the key, as long as its lease. Only the claim's token can
/// release it. Each operation is one script and one round trip. [This page](super) says what is
/// kept in the server, what is not guaranteed, and what the user must be allowed to do.
///
/// ```no_run
/// # async fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use bellwether::RedisOptions;
/// use bellwether_lock::RedisLock;
///
/// let options = RedisOptions::new("redis://127.0.0.1:6379")?.namespace("shop")?;
/// let lock = RedisLock::connect(options).await?;
/// # let _ = lock;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// An operation fails after its [timeout](RedisOptions::timeout). A server that is
/// [down](RedisOptions::down_after) is not asked, and operations fail at once.
#[derive(Clone, Debug)]
pub struct RedisLock(Arc<Scripted>);

impl RedisLock {
    /// Connects to a `redis://` or `unix://` address, or with [`RedisOptions`]. Makes sure that the
    /// server answers and allows what the scripts need.
    ///
    /// # Errors
    /// If the address is invalid, if the server cannot be reached or is not ready, if it is a replica or a node of a cluster,
    /// or if the user lacks a right.
    pub async fn connect<O>(options: O) -> Result<Self, LockError>
    where
        O: TryInto<RedisOptions, Error: Into<ConfigError>>,
    {
        let lock = Self::connect_lazily(options.try_into().map_err(Into::into)?);
        lock.0.prove().await?;
        prove(&lock).await?;
        Ok(lock)
    }

    /// A lock that connects when it is first used, for services that start before their Redis.
    pub fn connect_lazily(options: RedisOptions) -> Self {
        let scripts = LockScripts {
            acquire: RedisScript::new(&[
                include_str!("take.lua"),
                RedisScript::PRELUDE,
                PRELUDE,
                include_str!("contested.lua"),
            ]),
            renew: script(&[include_str!("renew.lua")]),
            verify: script(&[include_str!("verify.lua")]),
            release: RedisScript::new(&[include_str!("release.lua")]),
        };
        Self(Scripted::new(options, ":lock", scripts, &[]))
    }
}

impl Lock for RedisLock {
    fn watch(&self, key: &Key) -> Watch {
        self.0.watch(key)
    }

    fn acquire(&self, request: Request) -> LockFuture<Attempt> {
        let names = vec![self.0.name(request.claim.key())];
        self.0.acquire(&request, names, Vec::new())
    }

    fn renew(&self, claim: &Claim, lease: Duration) -> LockFuture<Renew> {
        self.0.renew(claim, lease)
    }

    fn verify(&self, claim: &Claim) -> Option<LockFuture<Renew>> {
        self.0.verify(claim)
    }

    fn release(&self, claim: Claim) -> LockFuture<Released> {
        let names = vec![self.0.name(claim.key())];
        self.0.release(claim, names)
    }
}

impl Fenced for RedisLock {}

impl TakeOver for RedisLock {
    fn take_over(&self, request: Request, from: Holder) -> LockFuture<Attempt> {
        let from = [from.grant.to_be_bytes(), from.renewed_at.to_be_bytes()].concat();
        let names = vec![self.0.name(request.claim.key())];
        self.0.acquire(&request, names, from)
    }
}
