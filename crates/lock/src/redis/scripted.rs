//! What the locks in one server or cluster share: four scripts on the names of a key.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether::{ConfigError, Key};
use bellwether_redis_client::{
    ClientSetup, RedisClient, RedisClientOptions, RedisRequest, RedisScript, RedisValue, Tracking,
};
use uuid::Uuid;

use super::{millis, reply, token};
use crate::{Attempt, Claim, LocalQueues, Lock, LockError, Released, Renew, Request, Watchers};

/// One server or cluster, and the scripts of a kind of lock.
pub(super) struct Scripted {
    pub(super) client: RedisClient,
    /// The end of the name of a key. Each kind of lock has its own.
    suffix: &'static str,
    pub(super) scripts: LockScripts,
    pub(super) queues: LocalQueues,
    /// The counter of fences, unless each slot has its own.
    pub(super) counter: Option<Vec<u8>>,
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
    /// What the server reports is told to these watchers.
    pub(super) fn new(
        options: RedisClientOptions,
        watchers: Watchers,
        suffix: &'static str,
        scripts: LockScripts,
    ) -> Result<Arc<Self>, ConfigError> {
        let tracking = Tracking::Watches;
        let setup = ClientSetup { watchers, tracking, ..ClientSetup::default() };
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
            match self.client.is_tracked() {
                true => self.client.check_commands(&self.scripts.commands()).await?,
                false => self.client.check_scripts(&self.scripts.commands()).await?,
            }
            prove(lock).await
        });
        connecting.await
    }

    /// The name of a key that is locked.
    pub(super) fn name(&self, key: &Key) -> Vec<u8> {
        self.client.names().name(&key.digest(), self.suffix)
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
        names.push(self.counter.clone().unwrap_or_else(of_slot));
        let mark = if self.client.is_tracked() { Vec::new() } else { self.client.mark() };
        let rare = [more, mark];
        let mut args = vec![token(claim), millis(request.lease)];
        if rare.iter().any(|arg| !arg.is_empty()) {
            args.extend(rare);
        }
        let (names, args) = self.declared(names, args);
        let request = RedisRequest::script(&self.scripts.acquire, names, args, TAKING);
        self.run(request.of(claim.key()), reply::attempt).await
    }

    /// Asks for the lock by its name alone: for one without a fence.
    pub(super) async fn take(&self, claim: &Claim, lease: Duration) -> Result<Attempt, LockError> {
        let args = vec![token(claim), millis(lease)];
        self.ask(&self.scripts.acquire, claim.key(), args, TAKING, reply::attempt).await
    }

    pub(super) async fn renew(
        self: Arc<Self>,
        claim: Claim,
        lease: Duration,
    ) -> Result<Renew, LockError> {
        let args = vec![token(&claim), millis(lease)];
        self.ask(&self.scripts.renew, claim.key(), args, RENEWING, reply::renew).await
    }

    /// Reads the name, which subscribes to its next change.
    pub(super) async fn verify(self: Arc<Self>, claim: Claim) -> Result<Renew, LockError> {
        let args = vec![token(&claim)];
        self.ask(&self.scripts.verify, claim.key(), args, VERIFYING, reply::renew).await
    }

    /// Releases the lock. The server may track the first of the names.
    pub(super) async fn release(
        self: Arc<Self>,
        claim: Claim,
        names: Vec<Vec<u8>>,
    ) -> Result<Released, LockError> {
        let (names, args) = self.declared(names, vec![token(&claim)]);
        let request = RedisRequest::script(&self.scripts.release, names, args, FREEING);
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

    /// Runs a script on the name of a key.
    pub(super) async fn ask<T>(
        &self,
        script: &RedisScript,
        key: &Key,
        args: Vec<Vec<u8>>,
        doing: &'static str,
        read: impl FnOnce(RedisValue) -> Option<T>,
    ) -> Result<T, LockError> {
        let request = RedisRequest::script(script, [self.name(key)], args, doing);
        self.run(request.of(key), read).await
    }
}

impl LockScripts {
    /// The commands in them.
    pub(super) fn commands(&self) -> Vec<&'static str> {
        self.commands.split(' ').collect()
    }
}

/// Takes and releases an unused key, so that `connect` reports what the server refuses.
pub(super) async fn prove(lock: &dyn Lock) -> Result<(), LockError> {
    let claim = Claim::new(Key::of(CHECK).with(Uuid::new_v4()));
    let lease = Duration::from_secs(1);
    lock.acquire(Request::new(claim.clone(), lease).patient_for(lease)).await?;
    lock.release(claim).await?;
    Ok(())
}

/// What a lock does alike, whatever its scripts are.
macro_rules! by_scripts {
    ($self:ident, $lock:expr) => {
        fn watch(&$self, key: &Key) -> Watch {
            $lock.client.watch(key.digest())
        }

        fn renew(&$self, claim: &Claim, lease: Duration) -> LockFuture<Renew> {
            Box::pin(Arc::clone(&$lock).renew(claim.clone(), lease))
        }

        fn verify(&$self, claim: &Claim) -> Option<LockFuture<Renew>> {
            Some(Box::pin(Arc::clone(&$lock).verify(claim.clone())))
        }

        fn local_queues(&$self) -> LocalQueues {
            $lock.queues.clone()
        }
    };
}

pub(super) use by_scripts;

/// Shows where the server is, and neither user nor password.
impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}

pub(super) const TAKING: &str = "taking the lock";
pub(super) const RENEWING: &str = "renewing the lock";
pub(super) const VERIFYING: &str = "verifying the lock";
pub(super) const FREEING: &str = "freeing the lock";

const CHECK: &str = "bellwether.check";

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
