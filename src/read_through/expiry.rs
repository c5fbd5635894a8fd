//! Expiring an entry that leads to other entries.

use bytes::Bytes;

use super::client::{CacheClient, TERM};
use crate::error::{CacheError, StoreError};
use crate::key::Key;
use crate::stats::InvalidationEvent;
use crate::store::{Accept, Acquire, Claim, Commit, Draft, Entry, Value};
use crate::tag::Tags;

impl<C> CacheClient<C> {
    /// Makes the entry of a key stale, as [`Handle::expire`](crate::Handle::expire) does. Returns
    /// whether there was an entry.
    ///
    /// But an entry for which `update` gives bytes stays fresh, and holds these instead. That is for an
    /// entry that leads to others, and has to tell that those are stale. The bytes are encoded by the
    /// codec of the entry, and it keeps its tags and its lifetimes, which begin again. `update` may be
    /// called twice. If another caller has the lease of the key, or the update fails, such an entry is expired
    /// too.
    ///
    /// # Errors
    /// As [`Handle::expire`](crate::Handle::expire).
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, the entry may have become stale, or hold the new bytes, or
    /// not. The lease lapses after two seconds.
    pub async fn expire_or_update(
        &self,
        key: &Key,
        update: impl Fn(&Entry) -> Option<Bytes>,
    ) -> Result<bool, CacheError> {
        // If the update fails, the expiry is what a store keeps and repeats.
        let expired = match self.update(key, update).await {
            Ok(true) => Ok(true),
            Ok(false) | Err(_) => self.store().expire(key.clone()).await,
        };
        self.core()
            .statistics
            .changed(InvalidationEvent::Expired, expired)
            .map_err(|error| CacheError::store(key, &error))
    }

    /// Returns whether the entry holds the new bytes.
    async fn update(
        &self,
        key: &Key,
        update: impl Fn(&Entry) -> Option<Bytes>,
    ) -> Result<bool, StoreError> {
        let store = self.store();
        let found = store.lookup(key.clone()).await?;
        if found.as_ref().and_then(&update).is_none() {
            return Ok(false);
        }
        let claim = Claim::new(key.clone());
        if let Acquire::Lead { lease, stale, .. } =
            store.acquire(claim, TERM, Accept::Nothing).await?
        {
            // It may be another entry by now.
            match stale.as_ref().and_then(|entry| Some((entry, update(entry)?))) {
                Some((entry, bytes)) => {
                    let tags = Tags::of_entry(entry.epochs().iter().map(|epoch| *epoch.tag()));
                    let draft = Draft::new(Value::new(bytes), entry.codec(), entry.lifetimes());
                    if store.commit(lease, draft.tagged(tags)).await? == Commit::Stored {
                        return Ok(true);
                    }
                }
                None => store.abandon(lease.into_claim()).await?,
            }
        }
        Ok(false)
    }
}
