//! What the locks in one server have in common: four scripts on one name.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bellwether::store::{Call, RedisValue as Value, Source, Wire};
use bellwether::{Digest, Key, RedisOptions, StoreError};
use tokio::time::Instant;

use super::{FENCE_TTL, millis, prove_single, reply, token};
use crate::{Answer, Attempt, Claim, Released, Renew, Request, Watch, Watchers};

/// One server, and how a kind of lock is taken, renewed and released there.
pub(super) struct Scripted {
    wire: Wire,
    /// What ends the name of a key. It tells the kinds of locks apart.
    suffix: &'static str,
    scripts: Scripts,
    made_at: Instant,
    /// When the life of the mark is to begin again, in seconds after `made_at`.
    prolong_at: AtomicU64,
}

/// The scripts of a kind of lock.
pub(super) struct Scripts {
    pub(super) acquire: Source,
    pub(super) renew: Source,
    pub(super) verify: Source,
    pub(super) release: Source,
}

impl Scripted {
    pub(super) fn new(
        options: RedisOptions,
        suffix: &'static str,
        scripts: Scripts,
        others: &[&Source],
    ) -> Arc<Self> {
        let Scripts { acquire, renew, verify, release } = &scripts;
        let all = [acquire, renew, verify, release].into_iter().chain(others.iter().copied());
        let wire = Wire::new(options, all.cloned().collect(), Watchers::default());
        let (made_at, prolong_at) = (Instant::now(), AtomicU64::new(0));
        Arc::new(Self { wire, suffix, scripts, made_at, prolong_at })
    }

    /// Makes sure that it is a single server.
    pub(super) async fn prove(&self) -> Result<(), StoreError> {
        prove_single(&self.wire, &self.scripts.renew).await
    }

    pub(super) fn watch(&self, key: &Key) -> Watch {
        self.wire.watch(key.digest())
    }

    /// A name that is not watched, though the scripts read it.
    pub(super) fn unheard_name(&self, what: &str, digest: &Digest) -> Vec<u8> {
        self.wire.shared_name(&format!("{what}:{{{digest}}}"))
    }

    /// What a key that is locked is called.
    pub(super) fn name(&self, key: &Key) -> Vec<u8> {
        self.wire.name(&key.digest(), self.suffix)
    }

    /// Tells a script, once in a while, that the life of the mark begins again: an hour more of it
    /// costs less than a command with each grant.
    pub(super) fn prolongs_mark(&self) -> Vec<u8> {
        let now = self.made_at.elapsed().as_secs();
        let at = self.prolong_at.load(Ordering::Relaxed);
        let next = now + PROLONGED_EVERY.as_secs();
        let is_ours = at <= now
            && self
                .prolong_at
                .compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_ours { b"1".to_vec() } else { Vec::new() }
    }

    /// Asks, with the one name that is heard of, and what this kind of lock wants to know besides.
    pub(super) fn acquire(
        self: &Arc<Self>,
        request: &Request,
        name: Vec<u8>,
        more: Vec<Vec<u8>>,
    ) -> Answer<Attempt> {
        let (lock, claim) = (Arc::clone(self), request.claim.clone());
        let mark = self.wire.shared_name("fence");
        let life = millis(FENCE_TTL + PROLONGED_EVERY);
        let args = [vec![token(&claim), millis(request.lease), mark, life], more].concat();
        Box::pin(async move {
            let (source, key) = (&lock.scripts.acquire, claim.key());
            let call = Call { source, keys: vec![name], args, doing: "taking the lock", key };
            lock.wire.run(call, reply::attempt).await
        })
    }

    pub(super) fn renew(self: &Arc<Self>, claim: &Claim, lease: Duration) -> Answer<Renew> {
        let (lock, claim) = (Arc::clone(self), claim.clone());
        Box::pin(async move {
            let args = vec![token(&claim), millis(lease)];
            let (source, keys) = (&lock.scripts.renew, vec![lock.name(claim.key())]);
            let call = Call { source, keys, args, doing: "renewing the lock", key: claim.key() };
            lock.wire.run(call, reply::renew).await
        })
    }

    /// Reads the name, which has the server tell of its next change.
    pub(super) fn verify(self: &Arc<Self>, claim: &Claim) -> Option<Answer<Renew>> {
        let (lock, claim) = (Arc::clone(self), claim.clone());
        Some(Box::pin(async move {
            let args = vec![token(&claim)];
            let (source, keys) = (&lock.scripts.verify, vec![lock.name(claim.key())]);
            let call = Call { source, keys, args, doing: "verifying the lock", key: claim.key() };
            lock.wire.run(call, reply::renew).await
        }))
    }

    pub(super) fn release(
        self: &Arc<Self>,
        claim: Claim,
        name: Vec<u8>,
        more: Vec<Vec<u8>>,
    ) -> Answer<Released> {
        let lock = Arc::clone(self);
        Box::pin(async move {
            let args = [vec![token(&claim)], more].concat();
            let (source, key) = (&lock.scripts.release, claim.key());
            let call = Call { source, keys: vec![name], args, doing: "freeing the lock", key };
            lock.wire.run_once(call, reply::released).await
        })
    }

    /// Runs a script of this kind of lock only.
    pub(super) async fn ask<T>(
        &self,
        source: &Source,
        key: &Key,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, StoreError> {
        let (keys, args) = (vec![self.name(key)], Vec::new());
        let call = Call { source, keys, args, doing: "looking at the lock", key };
        self.wire.run(call, read).await
    }
}

/// Shows where the server is, and neither user nor password.
impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wire.fmt(f)
    }
}

/// How often the life of the mark begins again at most.
const PROLONGED_EVERY: Duration = Duration::from_secs(60 * 60);
