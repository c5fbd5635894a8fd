//! Expiring an entry that leads to other entries.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::shared_runs::SharedRuns;
use crate::error::StoreError;
use crate::jitter::jitter;
use crate::key::Key;
use crate::store::{Accept, Acquire, Claim, Commit, Draft, Entry, Lease, Store, Value};
use crate::tag::Tags;

/// The expiries of entries that lead to others. Concurrent ones of a key share a run.
pub(crate) type ExpiryRuns = SharedRuns<Result<bool, StoreError>>;

/// How a layer expires entries that lead to others.
#[derive(Clone, Debug)]
pub(super) struct UpdatingExpiry {
    /// What an entry holds after an expiry, encoded by its codec, if that is not the entry as it is but
    /// stale. It may be called several times for one expiry.
    pub(super) update: fn(&Entry) -> Option<Bytes>,
    pub(super) runs: ExpiryRuns,
}

impl UpdatingExpiry {
    /// Gives an entry the bytes that `update` says, or makes it stale. Returns whether there was an
    /// entry.
    ///
    /// If the update fails, or another caller keeps the lease, the entry is expired: a store keeps and
    /// repeats expiries, not updates. For the same reason this runs in a task, which goes on if the
    /// caller leaves, unless there is no runtime.
    pub(super) async fn expire(
        &self,
        store: &Arc<dyn Store>,
        key: &Key,
    ) -> Result<bool, StoreError> {
        let expiry = expiry(Arc::clone(store), key.clone(), self.update);
        match self.runs.run(key, expiry).await {
            Some(expired) => expired,
            None => store.expire(key.clone()).await,
        }
    }
}

type ExpiryUpdate = fn(&Entry) -> Option<Bytes>;

/// What became of an update.
enum Updated {
    Stored,
    /// There was no entry that is updated.
    NotThere,
    /// There was one, and another caller has the lease, or has removed the entry meanwhile.
    Refused,
}

async fn expiry(store: Arc<dyn Store>, key: Key, update: ExpiryUpdate) -> Result<bool, StoreError> {
    match updated(&*store, &key, update).await {
        Ok(Updated::Stored) => Ok(true),
        // Replicas do not have it, and an expiry in its place would fail as this does.
        Err(error) if error.is_executed() => Err(error),
        Ok(Updated::NotThere) | Err(_) => store.expire(key).await,
        // What has refused the update may have removed the entry.
        Ok(Updated::Refused) => store.expire(key).await.map(|_| true),
    }
}

async fn updated(
    store: &dyn Store,
    key: &Key,
    update: ExpiryUpdate,
) -> Result<Updated, StoreError> {
    let found = store.lookup(key.clone()).await?;
    if found.as_ref().and_then(update).is_none() {
        return Ok(Updated::NotThere);
    }
    let begun = Instant::now();
    for nth in 1.. {
        let mut watch = store.watch(key);
        let acquired = store.acquire(Claim::new(key.clone()), TERM, Accept::Nothing).await?;
        if let Acquire::Lead { lease, stale, .. } = acquired {
            return commit(store, lease, stale, update).await;
        }
        // A process that was held up for so long has tried only once.
        let is_over = nth >= LEAST_TRIES && begun.elapsed() >= LONGEST_WAIT;
        if is_over || Handle::try_current().is_err() {
            break;
        }
        // The holder is nearly always an expiry by another process, which takes a moment. Its end wakes
        // all processes, and they should not ask all at once.
        _ = timeout(PAUSE, watch.changed()).await;
        sleep(SPREAD.mul_f64(jitter())).await;
    }
    Ok(Updated::Refused)
}

/// Updates the entry under a lease. It may be another one by now.
async fn commit(
    store: &dyn Store,
    lease: Lease,
    entry: Option<Entry>,
    update: ExpiryUpdate,
) -> Result<Updated, StoreError> {
    let Some((entry, bytes)) = entry.and_then(|entry| update(&entry).map(|bytes| (entry, bytes)))
    else {
        store.abandon(lease.into_claim()).await?;
        return Ok(Updated::Refused);
    };
    let tags = Tags::of_entry(entry.epochs().iter().map(|epoch| *epoch.tag()));
    let draft = Draft::new(Value::new(bytes), entry.codec(), entry.lifetimes()).tagged(tags);
    Ok(match store.commit(lease, draft.as_expiry()).await? {
        Commit::Stored => Updated::Stored,
        Commit::Superseded => Updated::Refused,
    })
}

/// The term of a lease that is taken only to store an answer.
pub(super) const TERM: Duration = Duration::from_secs(2);

/// For how long the lease of an entry is requested, and how often at least.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const LEAST_TRIES: u32 = 8;

/// The longest wait for a holder before the next attempt, and the time over which those of the processes
/// that its end wakes are spread.
const PAUSE: Duration = Duration::from_millis(25);
const SPREAD: Duration = Duration::from_millis(5);
