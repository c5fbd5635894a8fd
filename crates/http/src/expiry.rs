//! Expiring the entry of a target: a `Vary` index gets a note of the expiry, and stays fresh.

use std::time::Duration;

use bellwether::adapter::{CacheClient, jitter};
use bellwether::store::{Accept, Acquire, Claim, Commit, Draft, Entry, Lease, Store, Value};
use bellwether::{Handle, Key, StoreError};
use tokio::runtime;
use tokio::time::{Instant, sleep, timeout};

use super::codec::HttpCodec;
use super::shared_runs::SharedRuns;

/// The expiries of a layer. Concurrent ones of a key share a run.
pub(super) type ExpiryRuns = SharedRuns<Result<bool, StoreError>>;

/// A handle to the entries by their keys. It expires the variants of a response with its index.
pub(super) fn entries(client: &CacheClient<HttpCodec>, runs: &ExpiryRuns) -> Handle {
    let (client, runs) = (client.clone(), runs.clone());
    client.handle().expiring_by(move |key| {
        let (client, runs) = (client.clone(), runs.clone());
        Box::pin(async move { expire(client, &runs, key).await })
    })
}

/// Notes an expiry in the index of a key, or makes its entry stale. Returns whether there was an
/// entry.
///
/// If the note cannot be stored, or another caller keeps the lease, the entry is expired: a store keeps
/// and repeats expiries, not notes. For the same reason this runs in a task, which goes on if the
/// caller leaves, unless there is no runtime.
async fn expire(
    client: CacheClient<HttpCodec>,
    runs: &ExpiryRuns,
    key: Key,
) -> Result<bool, StoreError> {
    let expired = runs.run(&key, expire_now(client.clone(), key.clone())).await;
    match expired {
        Some(expired) => expired,
        None => client.store().expire(key).await,
    }
}

async fn expire_now(client: CacheClient<HttpCodec>, key: Key) -> Result<bool, StoreError> {
    let store = client.store();
    match noted(store, &key).await {
        Ok(Noted::Stored) => Ok(true),
        Ok(Noted::NotThere) | Err(_) => store.expire(key).await,
        // What has refused the note may have removed the entry.
        Ok(Noted::Refused) => store.expire(key).await.map(|_| true),
    }
}

/// What became of a note.
enum Noted {
    Stored,
    /// There was no index.
    NotThere,
    /// There was one, and another caller has the lease, or has removed the index meanwhile.
    Refused,
}

async fn noted(store: &dyn Store, key: &Key) -> Result<Noted, StoreError> {
    let found = store.lookup(key.clone()).await?;
    if found.as_ref().and_then(HttpCodec::expired_index).is_none() {
        return Ok(Noted::NotThere);
    }
    let begun = Instant::now();
    for nth in 1.. {
        let mut watch = store.watch(key);
        let acquired = store.acquire(Claim::new(key.clone()), TERM, Accept::Nothing).await?;
        if let Acquire::Lead { lease, stale, .. } = acquired {
            return commit(store, lease, stale).await;
        }
        // A process that was held up for so long has tried only once.
        let is_over = nth >= LEAST_TRIES && begun.elapsed() >= LONGEST_WAIT;
        if is_over || runtime::Handle::try_current().is_err() {
            break;
        }
        // The holder is nearly always an expiry by another process, which takes a moment. Its end wakes
        // all processes, and they should not ask all at once.
        _ = timeout(PAUSE, watch.changed()).await;
        sleep(SPREAD.mul_f64(jitter())).await;
    }
    Ok(Noted::Refused)
}

/// Notes the expiry in the index under a lease. It may be another index by now.
async fn commit(
    store: &dyn Store,
    lease: Lease,
    entry: Option<Entry>,
) -> Result<Noted, StoreError> {
    let noted =
        entry.and_then(|entry| HttpCodec::expired_index(&entry).map(|bytes| (entry, bytes)));
    let Some((entry, bytes)) = noted else {
        store.abandon(lease.into_claim()).await?;
        return Ok(Noted::Refused);
    };
    let draft = Draft::new(Value::new(bytes), entry.codec(), entry.lifetimes());
    let draft = draft.tagged(entry.tags()).as_expiry();
    Ok(match store.commit(lease, draft).await? {
        Commit::Stored => Noted::Stored,
        _ => Noted::Refused,
    })
}

/// The term of the lease under which an expiry is noted.
const TERM: Duration = Duration::from_secs(2);

/// For how long the lease of an index is requested, and how often at least.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const LEAST_TRIES: u32 = 8;

/// The longest wait for a holder before the next attempt, and the time over which those of the processes
/// that its end wakes are spread.
const PAUSE: Duration = Duration::from_millis(25);
const SPREAD: Duration = Duration::from_millis(5);
