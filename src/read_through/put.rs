//! Storing a value that was written to the source, without a load.

use super::client::CacheClient;
use super::client::TERM;
use super::load::{self, AnswerStorage, LoaderAnswer};
use crate::codec::Codec;
use crate::error::{CacheError, StoreError};
use crate::key::Key;
use crate::stats::InvalidationEvent;
use crate::store::{Accept, Acquire, Claim, Commit, Draft, Lease, Value};
use crate::tag::Tags;

impl<C> CacheClient<C> {
    /// Stores an answer that was just written to the source, with these tags and its own. Returns
    /// whether it was stored.
    ///
    /// When it has returned `Ok`, no answer of a load that began before is stored or served any
    /// more. See [`Cache::put`](crate::Cache::put) for the races of writers.
    ///
    /// # Errors
    /// If the store fails, or the key is too long. Then an older answer may still be stored. If the
    /// store failed, the key is invalidated, and the error is [kept](CacheError::is_kept) if the store
    /// repeats that.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, the answer may be stored or not, and an older one may
    /// still be there. The lease lapses after two seconds.
    pub async fn put<R>(&self, key: Key, tags: &Tags, answer: R) -> Result<bool, CacheError>
    where
        C: Codec<R>,
    {
        if key.byte_len() > Key::MAX_BYTES {
            return Err(CacheError::key_too_long(&key));
        }
        let draft = self.draft(&key, tags, answer);
        let stored = match draft {
            Some(draft) => self.replace_older(&key, draft).await,
            None => Ok(Put::Refused),
        };
        let put = match stored {
            Ok(Put::Stored) => Ok(true),
            // What is stored may be older, or written by a caller that came before.
            Ok(Put::Refused) => self.store().invalidate(key.clone()).await.map(|_| false),
            Err(error) => Err(self.remove_after(&key, error).await),
        };
        let counted = self.core().statistics.changed(InvalidationEvent::Put, put);
        counted.map_err(|error| CacheError::store(&key, &error))
    }

    /// What a store gets of an answer. `None` if the answer must not or cannot be stored.
    fn draft<R>(&self, key: &Key, tags: &Tags, answer: R) -> Option<Draft>
    where
        C: Codec<R>,
    {
        let core = self.core();
        match load::classified(core.codec.keep(answer), core, key, None) {
            LoaderAnswer::Loaded(
                kept,
                AnswerStorage::Store(bytes, extra_bytes, lifetimes),
                own,
            ) => {
                let value = Value::of(bytes, kept, extra_bytes);
                let tags = tags.union(&own);
                let tags =
                    tags.inspect_err(|many| load::warn_too_many_tags(core, key, *many)).ok()?;
                let tags = core.tags.and_everything(&tags);
                Some(Draft::new(value, core.codec.id(), lifetimes).tagged(tags))
            }
            _ => None,
        }
    }

    /// Commits under a lease, and takes the lease from a load that began before.
    async fn replace_older(&self, key: &Key, draft: Draft) -> Result<Put, StoreError> {
        let lease = match self.take_lease(key).await? {
            Some(lease) => lease,
            None => {
                // A load may have read the source before it changed. Ending its lease refuses its
                // answer.
                self.store().invalidate(key.clone()).await?;
                match self.take_lease(key).await? {
                    Some(lease) => lease,
                    None => return Ok(Put::Refused),
                }
            }
        };
        match self.store().commit(lease, draft).await? {
            Commit::Stored => {
                self.note_put(key);
                Ok(Put::Stored)
            }
            Commit::Superseded => Ok(Put::Refused),
        }
    }

    /// Removes what is older than an answer that could not be stored. Returns the error of that if
    /// the store keeps and repeats it.
    async fn remove_after(&self, key: &Key, error: StoreError) -> StoreError {
        match self.store().invalidate(key.clone()).await {
            Err(kept) if kept.is_kept() => kept,
            _ => error,
        }
    }

    async fn take_lease(&self, key: &Key) -> Result<Option<Lease>, StoreError> {
        let claim = Claim::new(key.clone());
        Ok(match self.store().acquire(claim, TERM, Accept::Nothing).await? {
            Acquire::Lead { lease, .. } => Some(lease),
            _ => None,
        })
    }

    /// The key has an answer that can be shared, so what is remembered against it is over.
    fn note_put(&self, key: &Key) {
        let digest = key.digest();
        let loads = &self.core().loads;
        loads.failures.forget(&digest);
        loads.unshared_failures.forget(&digest);
        loads.private_keys.note_shared(&digest);
    }
}

/// The end of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    Stored,
    /// It cannot be stored, or another caller changed the key at the same time.
    Refused,
}
