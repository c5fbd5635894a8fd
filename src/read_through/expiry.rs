//! Expiring an entry that leads to other entries.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tracing::Instrument;

use crate::error::StoreError;
use crate::key::Key;
use crate::store::{Accept, Acquire, Claim, Commit, Draft, Entry, Lease, Store, Value};
use crate::tag::Tags;

/// What an entry holds after an expiry, encoded by its codec, if that is not the entry as it is but
/// stale. It may be called several times for one expiry.
pub(super) type ExpiryUpdate = fn(&Entry) -> Option<Bytes>;

/// What became of an update.
enum Updated {
    Stored,
    /// There is no entry that is updated.
    NotThere,
    /// There is one, and another caller has the lease, or has invalidated the key meanwhile.
    Refused,
}

/// Gives an entry the bytes that `update` says, or makes it stale. Returns whether there was an entry.
///
/// If the update fails, or another caller keeps the lease, the entry is expired: a store keeps and
/// repeats expiries, not updates. For the same reason this runs in a task, which goes on if the caller
/// leaves, unless there is no runtime.
pub(super) async fn update_or_expire(
    store: &Arc<dyn Store>,
    key: &Key,
    update: ExpiryUpdate,
) -> Result<bool, StoreError> {
    let expiry = expiry(Arc::clone(store), key.clone(), update).in_current_span();
    let Ok(runtime) = Handle::try_current() else { return expiry.await };
    match runtime.spawn(expiry).await {
        Ok(expired) => expired,
        // It has panicked, or its runtime ends.
        Err(_) => store.expire(key.clone()).await,
    }
}

async fn expiry(store: Arc<dyn Store>, key: Key, update: ExpiryUpdate) -> Result<bool, StoreError> {
    match updated(&*store, &key, update).await {
        Ok(Updated::Stored) => Ok(true),
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
    for tries_left in (0..TRIES).rev() {
        let mut watch = store.watch(key);
        let acquired = store.acquire(Claim::new(key.clone()), TERM, Accept::Nothing).await?;
        if let Acquire::Lead { lease, stale, .. } = acquired {
            return commit(store, lease, stale, update).await;
        }
        // The holder is nearly always another expiry of the key, which takes a moment.
        if tries_left > 0 && Handle::try_current().is_ok() {
            _ = timeout(PAUSE, watch.changed()).await;
        }
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
        return Ok(Updated::NotThere);
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

/// How often the lease of an entry is requested, and how long an attempt waits for its holder at most.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(25);
