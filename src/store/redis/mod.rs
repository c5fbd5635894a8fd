//! `RedisStore`: entries and leases shared by a fleet.

mod check;
pub(crate) mod client;
mod envelope;
mod heartbeat;
mod inner;
mod lookups;
mod near;
mod operations;
mod record;
mod reminder;
mod reply;
mod scripts;
mod stats;
mod unacknowledged;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::client::RedisOptions;
pub use self::stats::RedisStats;

use self::inner::Inner;
use super::{Accept, Acquire, Claim, Commit, Draft, Entry, Failure, Lease, StoreFuture};
use super::{Peek, Renew, Store, Watch};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;

/// Entries and leases in a Redis (6.2 or later) or Valkey server, shared by a fleet.
///
/// A handle: clones share one set of connections. Every operation is one command and one round
/// trip: an `MGET` for lookups, which concurrent callers share, and a script for everything else. A
/// caller that is told that a key is busy is subscribed to its changes by that answer (RESP3 client
/// tracking); where the server refuses that, waiters find the value by their pauses alone. With
/// [`near`](RedisOptions::near), what was read is kept in this process too, and lookups ask for what
/// is left of lives, by a script.
///
/// # Names
/// A key has four names in one hash slot: `bw:<namespace>:{<digest>}` for its entry, and the same with
/// `:lease`, `:watermark` and `:failed`. All names that a script touches are declared in its `KEYS`, with
/// one exception: Redis before 7.2 tracks every declared name for the caller, whether the script reads
/// it or not, so the watermark and the failure are arguments there. They may never change again, and would
/// be tracked for ever, at 116 bytes each.
///
/// # When the server's clock is set
/// Redis counts expiry by its wall clock. An entry carries the server's time at which it was stored
/// as well, so a clock that is set back prolongs nothing. No entry is given out with more life than
/// it was stored with, and an entry from a later time than the clock shows counts as missing: it is
/// loaded again. A lease without a holder lapses within its term after the next caller asks for it, a
/// failure window ends at once or after its length at most, and invalidations hold. A clock that is
/// set forward ends entries, leases and failure windows early. Steps of less than a second are taken
/// for drift.
///
/// # What a user of the server must be allowed to do
/// `~bw:* +mget +get +getex +setrange +set +del +pttl +pexpire +time +evalsha +eval +hello +ping +client|tracking`.
/// With `+script|load` as well, the scripts are known before they are first needed.
///
/// # Errors
/// A command takes no longer than [`RedisOptions::timeout`], and an operation is one, or two now and
/// then. A command that timed out may have been executed all the same; the protocol is made for
/// that. A server that is down costs nothing after the first failures: see
/// [`RedisOptions::down_after`].
///
/// # Leases after an outage
/// A lease may be left by a command whose reply was lost. The store remembers its claim, up to
/// 10,000 of them, and gives the lease up as soon as the server answers again: in a task that is
/// there while there are such claims, at most until their leases have lapsed. Another claim of the
/// same process takes such a lease over meanwhile. A command that takes a lease and arrives when its
/// caller has stopped waiting, by the server's clock, takes none.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

impl RedisOptions {
    /// Connects, and makes sure that the server answers and allows what the scripts need.
    ///
    /// # Errors
    /// If the server cannot be reached or is not ready, if it is a replica or a node of a cluster,
    /// or if the user lacks a right, which the error names.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let store = self.connect_lazily();
        check::prepare(&store.0).await?;
        Ok(store)
    }

    /// A store that connects when it is first used, for services that start before their Redis.
    pub fn connect_lazily(self) -> RedisStore {
        RedisStore(Arc::new(Inner::new(self)))
    }
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
        self.0.stats()
    }

    /// Whether the server reports changes, as far as is known: it is found out on connecting.
    pub fn is_tracking(&self) -> bool {
        self.0.client.is_tracked()
    }

    /// Whether the server is taken to be down, because so many requests in a row have failed
    /// ([`RedisOptions::down_after`]). It is until a request gets through, so a store that is not used
    /// stays so.
    pub fn is_down(&self) -> bool {
        self.0.client.is_down()
    }
}

impl Store for RedisStore {
    fn peek(&self, key: &Key) -> Peek {
        let copy = self.0.near.as_ref().and_then(|near| near.find(key));
        copy.map_or(Peek::Unknown, Peek::Found)
    }

    fn watch(&self, key: &Key) -> Watch {
        self.0.client.watch(key.digest())
    }

    fn lookup(&self, key: Key) -> StoreFuture<Option<Entry>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.lookup(&key).await })
    }

    fn acquire(&self, claim: Claim, term: Duration, accept: Accept) -> StoreFuture<Acquire> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.acquire(&claim, term, accept).await })
    }

    fn renew(&self, lease: &Lease, term: Duration) -> StoreFuture<Renew> {
        let (inner, claim) = (Arc::clone(&self.0), lease.claim().clone());
        Box::pin(async move { inner.renew(&claim, term).await })
    }

    fn commit(&self, lease: Lease, draft: Draft) -> StoreFuture<Commit> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.commit(lease, draft).await })
    }

    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<()> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.fail(&lease.into_claim(), failure).await })
    }

    fn abandon(&self, claim: Claim) -> StoreFuture<()> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.abandon(&claim).await })
    }

    fn invalidate(&self, key: Key) -> StoreFuture<()> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.invalidate(key, false).await })
    }

    fn expire(&self, key: Key) -> StoreFuture<()> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.invalidate(key, true).await })
    }
}

/// Shows where the server is, and neither user nor password.
impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("options", self.0.client.options())
            .field("is_tracking", &self.is_tracking())
            .field("stats", &self.stats())
            .finish()
    }
}
