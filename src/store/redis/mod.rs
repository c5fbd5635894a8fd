//! `RedisStore`: entries and leases shared by a fleet.

mod envelope;
mod lane;
mod link;
mod looks;
mod names;
mod options;
mod record;
mod reply;
mod script;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use redis::{ProtocolVersion, Value};

pub use self::options::RedisOptions;

use self::envelope::Stamp;
use self::lane::{Lane, Question, Trouble};
use self::link::{Ears, Links};
use self::looks::Looks;
use self::names::Names;
use self::reply::{Acquired, Found, Seen};
use self::script::{Scripts, Source};
use super::{Accept, Acquire, Answer, Claim, Commit, Draft, Entry, FLOOR_LIFE, Failure, Lease};
use super::{Remaining, Renew, Store, Token, Watch, Watchers};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::{Digest, Key};

/// Entries and leases in a Redis (6.2 or later) or Valkey server, shared by a fleet.
///
/// A handle: clones share one set of connections. Every operation is one command and one round
/// trip: an `MGET` for looks, which callers who look at the same time share, and a script for
/// everything else. Whoever is told that a key is busy has, by that answer, subscribed to its
/// changes (RESP3 client tracking); where the server refuses that, losers find the value by their
/// pauses alone.
///
/// # What a user of the server must be allowed to do
/// `~bw:* +mget +set +del +pttl +pexpire +time +evalsha +eval +hello +ping +client|tracking`.
/// With `+script|load` as well, the scripts are known before they are first needed.
///
/// # Errors
/// Nothing here waits longer than [`RedisOptions::timeout`]. A command that timed out may have been
/// executed all the same; the protocol is made for that.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    options: RedisOptions,
    names: Names,
    scripts: Arc<Scripts>,
    watchers: Watchers,
    /// Whether the server tells of changes.
    told: Arc<AtomicBool>,
    /// Plain hits go here, so that the server tracks only what somebody waits for.
    plain: Box<[Looks]>,
    /// Leases go here, and changes come from here.
    hearing: Lane,
    connects: Arc<AtomicU64>,
    pushes: Arc<AtomicU64>,
    unreadable: AtomicU64,
}

/// What a [`RedisStore`] has counted since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisStats {
    /// Attempts to connect.
    pub connects: u64,
    /// Messages of the server about changes, and disconnections.
    pub pushes: u64,
    /// Entries that could not be read and counted as misses: damaged, of a newer version of this
    /// crate, of another key, or of a foreign type.
    pub unreadable: u64,
}

impl RedisStore {
    /// Connects to a `redis://` or `unix://` address, with the defaults of [`RedisOptions`].
    ///
    /// # Errors
    /// If it is no such address, or if the server cannot be reached or refuses.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let options = RedisOptions::new(url)
            .map_err(|error| StoreError::new(StoreErrorKind::Misconfigured, error.to_string()))?;
        options.connect().await
    }

    /// What it has counted since it was made.
    pub fn stats(&self) -> RedisStats {
        RedisStats {
            connects: self.0.connects.load(Ordering::Relaxed),
            pushes: self.0.pushes.load(Ordering::Relaxed),
            unreadable: self.0.unreadable.load(Ordering::Relaxed),
        }
    }

    /// Whether the server tells of changes, as far as is known: it is found out on connecting.
    pub fn hears(&self) -> bool {
        self.0.told.load(Ordering::Relaxed)
    }

    fn new(options: RedisOptions) -> Self {
        let names = Names::new(&options.namespace);
        let scripts = Arc::new(Scripts::new());
        let watchers = Watchers::default();
        let told = Arc::new(AtomicBool::new(options.tracking));
        let [connects, pushes] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let ears = Ears {
            names: names.clone(),
            watchers: watchers.clone(),
            open: Arc::clone(&told),
            heard: Arc::clone(&pushes),
        };
        let links = |ears| Links {
            client: options.client.clone(),
            protocol: match options.tracking {
                true => ProtocolVersion::RESP3,
                false => ProtocolVersion::RESP2,
            },
            timeout: options.timeout,
            scripts: Arc::clone(&scripts),
            made: Arc::clone(&connects),
            ears,
        };
        let plain = (1..options.connections)
            .map(|_| Looks::over(Lane::new(links(None)), Arc::clone(&scripts)))
            .collect();
        let hearing = Lane::new(links(Some(ears)));
        let unreadable = AtomicU64::new(0);
        Self(Arc::new(Inner {
            options,
            names,
            scripts,
            watchers,
            told,
            plain,
            hearing,
            connects,
            pushes,
            unreadable,
        }))
    }

    /// Connects now instead of at the first use.
    async fn prepare(&self) -> Result<(), StoreError> {
        for lane in self.0.plain.iter().map(Looks::lane).chain([&self.0.hearing]) {
            let ping = Question::Command(redis::cmd("PING"));
            lane.ask(&ping).await.map_err(|trouble| trouble.during("connecting", None))?;
        }
        Ok(())
    }
}

impl Inner {
    async fn look(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        let digest = key.digest();
        let looks = self.looks(&digest);
        loop {
            let seen = looks.look(self.names.entry(&digest)).await;
            let seen = seen.map_err(|trouble| trouble.during("looking", Some(key)))?;
            let Some(Seen { sealed, remaining }) = seen else {
                return Ok(None);
            };
            let Some((draft, stamp)) = self.open(sealed, key, &digest) else {
                return Ok(None);
            };
            let remaining = match remaining {
                Some(remaining) => Remaining::Known(remaining),
                None if !draft.windows().need_the_remaining_life() => Remaining::Fresh,
                None => {
                    looks.ask_for_lives();
                    continue;
                }
            };
            return Ok(Some(draft.into_entry(stamp.fence, stamp.stored_at, remaining)));
        }
    }

    async fn acquire(
        &self,
        claim: Claim,
        term: Duration,
        accept: Accept,
    ) -> Result<Acquire, StoreError> {
        match self.acquire_readable(&claim, term, accept).await? {
            Ok(acquired) => Ok(acquired),
            // What cannot be read is as good as nothing, and must not keep its key from ever being
            // loaded: who meets it asks for the lease all the same.
            Err(than) => {
                let again = self.acquire_readable(&claim, term, Accept::Other { than }).await?;
                let during = |_| Trouble::Malformed.during(ACQUIRING, Some(claim.key()));
                again.map_err(during)
            }
        }
    }

    /// Acquires; or gives the fence of the entry that is in the way and cannot be read.
    async fn acquire_readable(
        &self,
        claim: &Claim,
        term: Duration,
        accept: Accept,
    ) -> Result<Result<Acquire, u64>, StoreError> {
        let (key, digest) = (claim.key(), claim.key().digest());
        let during = |trouble: Trouble| trouble.during(ACQUIRING, Some(key));
        let acceptable = match accept {
            Accept::Fresh => b"1".to_vec(),
            Accept::Nothing => b"0".to_vec(),
            Accept::Other { than } => than.to_be_bytes().to_vec(),
        };
        let args = vec![token(claim.token()), number(millis(term)), acceptable];
        let reply = self.run(&self.scripts.acquire, &digest, args).await.map_err(during)?;
        let readable =
            |found: Option<Found>| found.and_then(|found| self.entry(found, key, &digest));
        Ok(match Acquired::read(reply).ok_or(Trouble::Malformed).map_err(during)? {
            Acquired::Found(found) => {
                let fence = envelope::fence(&found.sealed);
                readable(Some(found)).map(Acquire::Found).ok_or(fence)
            }
            Acquired::Busy { remaining, stale } => {
                Ok(Acquire::Busy { remaining, stale: readable(stale) })
            }
            Acquired::Failed { record, remaining, stale } => {
                let failure = record::read(&record).ok_or(Trouble::Malformed).map_err(during)?;
                Ok(Acquire::Failed { failure, remaining, stale: readable(stale) })
            }
            Acquired::Lead { fence, now, stale, failures } => {
                let lease = Lease::granted(claim.clone(), term, fence, now);
                Ok(Acquire::Lead { lease, stale: readable(stale), failures })
            }
        })
    }

    async fn renew(&self, claim: &Claim, term: Duration) -> Result<Renew, StoreError> {
        let key = claim.key();
        let keys = vec![self.names.lease(&key.digest())];
        let args = vec![token(claim.token()), number(millis(term))];
        let renew = Question::Script { source: &self.scripts.renew, keys, args };
        let reply = self.hearing.ask(&renew).await;
        match reply.map_err(|trouble| trouble.during("renewing the lease", Some(key)))? {
            Value::Int(1) => Ok(Renew::Held),
            Value::Int(_) => Ok(Renew::Lost),
            _ => Err(Trouble::Malformed.during("renewing the lease", Some(key))),
        }
    }

    async fn commit(&self, lease: Lease, draft: Draft) -> Result<Commit, StoreError> {
        let (key, digest) = (lease.key(), lease.key().digest());
        let stored_at = lease.granted_at().saturating_add(micros(draft.lease_age()));
        let stamp = Stamp { fence: lease.fence(), stored_at };
        let args = vec![
            token(lease.token()),
            envelope::seal(&draft, &digest, stamp),
            number(millis(draft.windows().life())),
            number(lease.fence()),
            number(lease.granted_at()),
            number(micros(FLOOR_LIFE)),
        ];
        let reply = self.run(&self.scripts.commit, &digest, args).await;
        match reply.map_err(|trouble| trouble.during("storing the entry", Some(key)))? {
            Value::Int(1) => Ok(Commit::Stored),
            Value::Int(_) => Ok(Commit::Superseded),
            _ => Err(Trouble::Malformed.during("storing the entry", Some(key))),
        }
    }

    async fn fail(&self, claim: Claim, failure: Failure) -> Result<(), StoreError> {
        let (key, digest) = (claim.key(), claim.key().digest());
        let keys = vec![self.names.lease(&digest), self.names.failed(&digest)];
        let life = number(millis(failure.life()));
        let args = vec![token(claim.token()), record::write(&failure), life];
        let fail = Question::Script { source: &self.scripts.fail, keys, args };
        let reply = self.hearing.ask(&fail).await;
        reply.map_err(|trouble| trouble.during("remembering a failure", Some(key)))?;
        Ok(())
    }

    async fn abandon(&self, claim: Claim) -> Result<(), StoreError> {
        let key = claim.key();
        let keys = vec![self.names.lease(&key.digest())];
        let args = vec![token(claim.token())];
        let abandon = Question::Script { source: &self.scripts.abandon, keys, args };
        let reply = self.hearing.ask(&abandon).await;
        reply.map_err(|trouble| trouble.during("giving the lease up", Some(key)))?;
        Ok(())
    }

    async fn invalidate(&self, key: Key, keep_stale: bool) -> Result<(), StoreError> {
        let keep: &[u8] = if keep_stale { b"1" } else { b"0" };
        let args = vec![number(millis(FLOOR_LIFE)), keep.to_vec()];
        let reply = self.run(&self.scripts.invalidate, &key.digest(), args).await;
        reply.map_err(|trouble| trouble.during("invalidating", Some(&key)))?;
        Ok(())
    }

    /// Runs a script on all the names of a key, where changes are heard.
    async fn run(
        &self,
        source: &Source,
        digest: &Digest,
        args: Vec<Vec<u8>>,
    ) -> Result<Value, Trouble> {
        let names = &self.names;
        let keys =
            [names.entry(digest), names.lease(digest), names.floor(digest), names.failed(digest)];
        let keys = keys.into();
        self.hearing.ask(&Question::Script { source, keys, args }).await
    }

    fn looks(&self, digest: &Digest) -> &Looks {
        &self.plain[usize::from(digest.as_bytes()[0]) % self.plain.len()]
    }

    fn entry(&self, found: Found, key: &Key, digest: &Digest) -> Option<Entry> {
        let (draft, stamp) = self.open(found.sealed, key, digest)?;
        let remaining = Remaining::Known(found.remaining);
        Some(draft.into_entry(stamp.fence, stamp.stored_at, remaining))
    }

    fn open(&self, sealed: Vec<u8>, key: &Key, digest: &Digest) -> Option<(Draft, Stamp)> {
        envelope::open(Bytes::from(sealed), digest)
            .inspect_err(|unreadable| self.note_unreadable(key, unreadable))
            .ok()
    }

    fn note_unreadable(&self, key: &Key, what: &dyn fmt::Display) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(%key, "counts as a miss: {what}");
    }
}

impl Store for RedisStore {
    fn watch(&self, key: &Key) -> Watch {
        if self.hears() { self.0.watchers.watch(key.digest()) } else { Watch::silent() }
    }

    fn look(&self, key: Key) -> Answer<Option<Entry>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.look(&key).await })
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> Answer<Acquire> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.acquire(claim, term, accept).await })
    }

    fn renew(&self, lease: &Lease) -> Answer<Renew> {
        let (inner, claim, term) = (Arc::clone(&self.0), lease.claim().clone(), lease.term());
        Box::pin(async move { inner.renew(&claim, term).await })
    }

    fn commit(&self, lease: Lease, draft: Draft) -> Answer<Commit> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.commit(lease, draft).await })
    }

    fn fail(&self, lease: Lease, failure: Failure) -> Answer<()> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.fail(lease.into_claim(), failure).await })
    }

    fn abandon(&self, claim: Claim) -> Answer<()> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.abandon(claim).await })
    }

    fn invalidate(&self, key: Key) -> Answer<()> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.invalidate(key, false).await })
    }

    fn expire(&self, key: Key) -> Answer<()> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.invalidate(key, true).await })
    }
}

/// Shows where the server is, and neither user nor password.
impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("options", &self.0.options)
            .field("hears", &self.hears())
            .field("stats", &self.stats())
            .finish()
    }
}

const ACQUIRING: &str = "taking the lease";

fn token(token: Token) -> Vec<u8> {
    token.as_bytes().to_vec()
}

fn number(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
