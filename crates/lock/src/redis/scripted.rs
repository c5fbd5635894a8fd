//! What the locks in one server or cluster share: four scripts on the names of a key.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether::{ConfigError, Key};
use bellwether_redis_client::{
    ClientSetup, RedisClient, RedisClientOptions, RedisRequest, RedisScript, RedisValue, Tracking,
};

use super::batches::Batches;
use super::{millis, prove, prove_single, reply, token};
use crate::{Attempt, Claim, LocalQueues, Lock, LockError, Released, Renew, Request};

/// One server or cluster, and the scripts of a kind of lock.
pub(super) struct Scripted {
    pub(super) client: RedisClient,
    /// The end of the name of a key. Each kind of lock has its own.
    suffix: &'static str,
    scripts: LockScripts,
    pub(super) queues: LocalQueues,
    /// The counter of fences, unless each slot has its own.
    counter: Option<Vec<u8>>,
}

/// The scripts of a kind of lock.
pub(super) struct LockScripts {
    pub(super) acquire: RedisScript,
    pub(super) renew: RedisScript,
    pub(super) verify: RedisScript,
    pub(super) release: RedisScript,
    /// The commands in them, with spaces between.
    pub(super) commands: &'static str,
}

impl Scripted {
    pub(super) fn new(
        options: RedisClientOptions,
        suffix: &'static str,
        scripts: LockScripts,
    ) -> Result<Arc<Self>, ConfigError> {
        let setup = ClientSetup { tracking: Tracking::Watches, ..Default::default() };
        let client = RedisClient::new(options, setup)?;
        let all_keys = Key::of("bellwether.fence").digest();
        let counter =
            (!client.is_cluster()).then(|| client.names().shared_name("fence", &all_keys));
        Ok(Arc::new(Self { client, suffix, scripts, queues: LocalQueues::default(), counter }))
    }

    /// Makes sure that the server can be reached, or all nodes of a cluster, and that it allows what
    /// the scripts need.
    pub(super) async fn prove(&self, lock: &dyn Lock) -> Result<(), LockError> {
        let connecting = self.client.connecting(async {
            self.client.connect().await?;
            let commands: Vec<_> = self.scripts.commands.split(' ').collect();
            match self.client.is_tracked() {
                true => self.client.check_commands(&commands).await?,
                false => self.client.check_scripts(&commands).await?,
            }
            prove_single(&self.client, &self.scripts.renew).await?;
            prove(lock).await
        });
        connecting.await
    }

    /// The name of a key that is locked.
    pub(super) fn name(&self, key: &Key) -> Vec<u8> {
        self.client.names().name(&key.digest(), self.suffix)
    }

    /// The counter of fences, unless each slot has its own.
    pub(super) fn counter(&self) -> Option<Vec<u8>> {
        self.counter.clone()
    }

    /// Batches of a script over the connection of this lock.
    pub(super) fn batches<const A: usize>(
        &self,
        script: RedisScript,
        shared: Option<Vec<u8>>,
        doing: &'static str,
    ) -> Batches<A> {
        Batches::new(self.client.clone(), script, shared, doing)
    }

    /// Asks for the lock. The server reports changes of the first of the names. `more` is the
    /// argument of this kind of lock. The counter is appended to the names.
    pub(super) async fn acquire(
        self: Arc<Self>,
        request: Request,
        mut names: Vec<Vec<u8>>,
        more: Vec<u8>,
    ) -> Result<Attempt, LockError> {
        let claim = &request.claim;
        let of_slot = || self.client.names().shared_name("fence", &claim.key().digest());
        names.push(self.counter().unwrap_or_else(of_slot));
        let mark = if self.client.is_tracked() { Vec::new() } else { self.client.mark() };
        let rare = [more, mark];
        let mut args = vec![token(claim), millis(request.lease)];
        if rare.iter().any(|arg| !arg.is_empty()) {
            args.extend(rare);
        }
        let (names, args) = self.declared(names, args);
        let request = RedisRequest::script(&self.scripts.acquire, names, args, "taking the lock");
        self.run(request.of(claim.key()), reply::attempt).await
    }

    pub(super) async fn renew(
        self: Arc<Self>,
        claim: Claim,
        lease: Duration,
    ) -> Result<Renew, LockError> {
        let (names, args) = ([self.name(claim.key())], [token(&claim), millis(lease)]);
        let request = RedisRequest::script(&self.scripts.renew, names, args, "renewing the lock");
        self.run(request.of(claim.key()), reply::renew).await
    }

    /// Reads the name, which subscribes to its next change.
    pub(super) async fn verify(self: Arc<Self>, claim: Claim) -> Result<Renew, LockError> {
        let (names, args) = ([self.name(claim.key())], [token(&claim)]);
        let request = RedisRequest::script(&self.scripts.verify, names, args, "verifying the lock");
        self.run(request.of(claim.key()), reply::renew).await
    }

    /// Releases the lock. The server may track the first of the names.
    pub(super) async fn release(
        self: Arc<Self>,
        claim: Claim,
        names: Vec<Vec<u8>>,
    ) -> Result<Released, LockError> {
        let (names, args) = self.declared(names, vec![token(&claim)]);
        let request = RedisRequest::script(&self.scripts.release, names, args, "freeing the lock");
        self.run(request.of(claim.key()).once(), reply::released).await
    }

    async fn run<T>(
        &self,
        request: RedisRequest<'_>,
        read: impl FnOnce(RedisValue) -> Option<T>,
    ) -> Result<T, LockError> {
        self.client.run(&request, read).await.map_err(LockError::from)
    }

    /// The names that a script declares, and its arguments. Redis before 7.2 tracks every declared
    /// name. So where a single server reports changes, all names but the first one are arguments.
    fn declared(
        &self,
        mut names: Vec<Vec<u8>>,
        mut args: Vec<Vec<u8>>,
    ) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        if self.client.is_tracked() && !self.client.is_cluster() {
            args.extend(names.drain(1..));
        }
        (names, args)
    }

    /// Runs a script of this kind of lock only.
    pub(super) async fn ask<T>(
        &self,
        script: &RedisScript,
        key: &Key,
        read: impl FnOnce(RedisValue) -> Option<T>,
    ) -> Result<T, LockError> {
        let request = RedisRequest::script(script, [self.name(key)], [], "reading the lock");
        self.run(request.of(key), read).await
    }
}

/// Shows where the server is, and neither user nor password.
impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_keep_counters_for_a_day_after_the_hour_in_which_their_life_is_set() {
        let hour = Duration::from_secs(60 * 60);
        let in_an_hour = format!("now - now % {} then", hour.as_micros());
        let life = format!("'PX', '{}')", (24 * hour + hour).as_millis());
        assert!(include_str!("grant.lua").contains(&in_an_hour));
        for script in [include_str!("take_many.lua"), include_str!("prelude.lua")] {
            assert!(script.contains(&life), "{script}");
        }
    }
}
