//! Expiring an entry that leads to other entries.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::error::StoreError;
use crate::key::Key;
use crate::store::{Accept, Acquire, Claim, Commit, Draft, Entry, Store, Value};
use crate::tag::Tags;

/// What an entry holds after an expiry, encoded by its codec, if that is not the entry as it is but
/// stale. It may be called twice for one expiry.
pub(super) type ExpiryUpdate = fn(&Entry) -> Option<Bytes>;

/// Gives an entry the bytes that `update` says, or makes it stale. Returns whether there was an entry.
///
/// If the update fails, or another caller has the lease, the entry is expired: a store keeps and repeats
/// expiries, not updates. For the same reason this runs in a task, which goes on if the caller leaves.
pub(super) async fn update_or_expire(
    store: &Arc<dyn Store>,
    key: &Key,
    update: ExpiryUpdate,
) -> Result<bool, StoreError> {
    let task = {
        let store = Arc::clone(store);
        let key = key.clone();
        async move {
            match updated(&*store, &key, update).await {
                Ok(true) => Ok(true),
                Ok(false) | Err(_) => store.expire(key).await,
            }
        }
    };
    match tokio::spawn(task).await {
        Ok(expired) => expired,
        // It has panicked, or its runtime ends.
        Err(_) => store.expire(key.clone()).await,
    }
}

/// Returns whether the entry holds the new bytes.
async fn updated(store: &dyn Store, key: &Key, update: ExpiryUpdate) -> Result<bool, StoreError> {
    let found = store.lookup(key.clone()).await?;
    if found.as_ref().and_then(update).is_none() {
        return Ok(false);
    }
    let claim = Claim::new(key.clone());
    if let Acquire::Lead { lease, stale, .. } = store.acquire(claim, TERM, Accept::Nothing).await? {
        // It may be another entry by now.
        match stale.as_ref().and_then(|entry| Some((entry, update(entry)?))) {
            Some((entry, bytes)) => {
                let tags = Tags::of_entry(entry.epochs().iter().map(|epoch| *epoch.tag()));
                let draft = Draft::new(Value::new(bytes), entry.codec(), entry.lifetimes());
                return Ok(store.commit(lease, draft.tagged(tags)).await? == Commit::Stored);
            }
            None => store.abandon(lease.into_claim()).await?,
        }
    }
    Ok(false)
}

/// The term of a lease that is taken only to store an answer.
pub(super) const TERM: Duration = Duration::from_secs(2);
