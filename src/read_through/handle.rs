//! `Handle`: invalidates and expires stored entries. `Changed`: a change of the source, together
//! with the invalidation of what is stored of it.

use std::collections::HashSet;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use tracing::Instrument;

use crate::error::CacheError;
use crate::key::Key;
use crate::stats::{CacheStats, InvalidationEvent, Statistics};
use crate::store::{Store, StoreFuture, Withdrawal, WithdrawalTarget};
use crate::tag::Tag;

/// A handle to the stored entries of a layer. Clones are handles to the same entries.
///
/// [`ReadThroughLayer::handle`](crate::ReadThroughLayer::handle) makes one before there is a
/// loader.
#[derive(Clone)]
pub struct Handle {
    pub(super) store: Arc<dyn Store>,
    pub(super) is_clearable: bool,
    pub(super) statistics: Arc<Statistics>,
    /// How an entry of a key expires, if not as the store does it.
    pub(super) expiry: Option<Arc<KeyExpiry>>,
}

type KeyExpiry = dyn Fn(Key) -> StoreFuture<bool> + Send + Sync;

impl Handle {
    /// A handle that [expires](Self::expire) a key by this function, for adapters whose entries lead to
    /// others. It must do what an expiry ([`Withdrawal::Expire`]) promises, and not end before that is done.
    pub fn expiring_by(
        self,
        expire: impl Fn(Key) -> StoreFuture<bool> + Send + Sync + 'static,
    ) -> Self {
        Self { expiry: Some(Arc::new(expire)), ..self }
    }

    /// Removes the entry of a key. Returns whether there was one, fresh or stale: `false` may mean
    /// that the key is not the one that was meant.
    ///
    /// After this has returned, no request that starts later gets a value whose load began before it, in
    /// any process. The value of a load under way is not stored, and only callers that had joined before
    /// that load began get it. The [guide](crate::guide::invalidation#exceptions) lists the exceptions:
    /// near copies of other processes, a Redis that loses the invalidation, a former primary from which
    /// another process still reads after a failover, and a clock that is set back.
    ///
    /// Call it after the source has changed, not before: a load in between would be stored.
    ///
    /// It leaves a watermark in the store for ten minutes. If Redis evicts or loses the watermark
    /// while a load is under way, the value of that load is stored.
    ///
    /// # Errors
    /// If the store fails. The operation may have happened or not; it is safe to repeat. A
    /// `RedisStore` repeats it by itself, and serves nothing of the key in this
    /// process until it has succeeded: [`CacheError::is_pending`] says so. The
    /// [guide](crate::guide::invalidation) has the details.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, the operation may have happened or not. A `RedisStore`
    /// repeats it.
    pub async fn invalidate(&self, key: &Key) -> Result<bool, CacheError> {
        self.withdraw(WithdrawalTarget::Key(key.clone()), Withdrawal::Invalidate).await
    }

    /// Removes the entries of many keys, each as [`invalidate`](Self::invalidate) does, 256 at a
    /// time. Returns how many entries there were. A key that is given twice counts once.
    ///
    /// # Errors
    /// An error of the store, after all keys have been tried. Every operation may have happened or
    /// not; it is safe to repeat. The error is [pending](CacheError::is_pending) only if those of all keys that
    /// failed are: if one of them is not, it is that one.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, each operation may have happened or not.
    pub async fn invalidate_many(
        &self,
        keys: impl IntoIterator<Item = Key>,
    ) -> Result<usize, CacheError> {
        count_found(keys, |key| async move { self.invalidate(&key).await }).await
    }

    /// Makes the entry of a key stale, as if its ttl had passed: the next request loads it again.
    /// An entry without a stale window is removed, as by [`invalidate`](Self::invalidate). Returns
    /// whether there was an entry.
    ///
    /// After this has returned, no request that starts later gets a value whose load began before it as
    /// a fresh one, in any process. Within the stale windows, which begin now, it may get that value as
    /// a stale one. The value of a load under way is not stored. Only callers that had joined before
    /// that load began get its value as a fresh one.
    ///
    /// # Errors
    /// As [`invalidate`](Self::invalidate).
    ///
    /// # Cancel safety
    /// As [`invalidate`](Self::invalidate).
    pub async fn expire(&self, key: &Key) -> Result<bool, CacheError> {
        self.withdraw(WithdrawalTarget::Key(key.clone()), Withdrawal::EXPIRE).await
    }

    /// Makes the entries of many keys stale, each as [`expire`](Self::expire) does, 256 at a time.
    /// Returns how many entries there were. A key that is given twice counts once.
    ///
    /// # Errors
    /// As [`invalidate_many`](Self::invalidate_many).
    ///
    /// # Cancel safety
    /// As [`invalidate_many`](Self::invalidate_many).
    pub async fn expire_many(
        &self,
        keys: impl IntoIterator<Item = Key>,
    ) -> Result<usize, CacheError> {
        count_found(keys, |key| async move { self.expire(&key).await }).await
    }

    /// What the services and handles of this layer have done in this process: requests by outcome,
    /// loads by reason and result, waits, leases and more. See [`stats`](crate::stats).
    pub fn stats(&self) -> CacheStats {
        self.statistics.read()
    }

    /// Removes all entries with a tag, in one step that does not depend on how many there are. After
    /// this has returned, no request that starts later gets a value with that tag whose load began
    /// before it. Copies in the near tiers of other processes follow
    /// within one message of the server. The [guide](crate::guide::tags) has the failure
    /// cases.
    ///
    /// Call it after the source has changed. Every entry is then loaded again, by one load each. If
    /// a tag has many entries, [`expire_tag`](Self::expire_tag) spares the source that.
    ///
    /// # Errors
    /// If the store has no tags, or as [`invalidate`](Self::invalidate).
    ///
    /// # Cancel safety
    /// As [`invalidate`](Self::invalidate).
    pub async fn invalidate_tag(&self, tag: &Tag) -> Result<(), CacheError> {
        self.withdraw(WithdrawalTarget::Tag(tag.clone()), Withdrawal::Invalidate).await.map(drop)
    }

    /// Makes all entries with a tag stale, as if their ttl had passed. While each is loaded again,
    /// callers get it within its stale window. Entries without a stale window are removed.
    ///
    /// The entries become stale one after the other over the time `spread`, each at a time that depends on
    /// its key, so that they are not all loaded again at once. Until then, an entry is as fresh as before.
    /// [`Duration::ZERO`] makes all of them stale at once. If the tag is expired again meanwhile, its entries
    /// from before the first expiry are stale at once.
    ///
    /// It promises of each entry what [`expire`](Self::expire) does. With a spread, that holds from the
    /// moment of the entry on, but loads under way store nothing from now on.
    ///
    /// # Errors
    /// As [`invalidate_tag`](Self::invalidate_tag).
    ///
    /// # Cancel safety
    /// As [`invalidate_tag`](Self::invalidate_tag).
    pub async fn expire_tag(&self, tag: &Tag, spread: Duration) -> Result<(), CacheError> {
        let change = Withdrawal::Expire { over: spread };
        self.withdraw(WithdrawalTarget::Tag(tag.clone()), change).await.map(drop)
    }

    /// Invalidates or expires a key or a tag, whichever it is: as the methods above, which say what that
    /// promises. Returns whether there was an entry of the key; for a tag, `false`.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn withdraw(
        &self,
        target: WithdrawalTarget,
        change: Withdrawal,
    ) -> Result<bool, CacheError> {
        let expires = change != Withdrawal::Invalidate;
        let event = match (&target, expires) {
            (WithdrawalTarget::Key(_), false) => InvalidationEvent::Invalidated,
            (WithdrawalTarget::Key(_), true) => InvalidationEvent::Expired,
            (WithdrawalTarget::Tag(_), false) => InvalidationEvent::InvalidatedTags,
            (WithdrawalTarget::Tag(_), true) => InvalidationEvent::ExpiredTags,
        };
        let withdrawn = match (&target, &self.expiry) {
            (WithdrawalTarget::Key(key), Some(expire)) if expires => expire(key.clone()).await,
            _ => self.store.withdraw(target.clone(), change).await,
        };
        self.statistics.changed(event, withdrawn).map_err(|error| match &target {
            WithdrawalTarget::Key(key) => CacheError::store(key, &error),
            WithdrawalTarget::Tag(tag) => CacheError::tag(tag, &error),
        })
    }

    /// Removes all entries of [clearable](crate::service::ReadThroughLayerBuilder::clearable) layers over this store
    /// (with `RedisStore`: of its namespace), as by [`invalidate_tag`](Self::invalidate_tag).
    ///
    /// # Errors
    /// As [`invalidate_tag`](Self::invalidate_tag); and
    /// [`NotClearable`](crate::CacheErrorKind::NotClearable) if this handle is of another layer.
    ///
    /// # Cancel safety
    /// As [`invalidate_tag`](Self::invalidate_tag).
    #[doc(alias = "invalidate_all")]
    pub async fn clear(&self) -> Result<(), CacheError> {
        match self.is_clearable {
            true => self.invalidate_tag(&Tag::everything()).await,
            false => Err(CacheError::not_clearable()),
        }
    }

    /// Changes the source, and then [invalidates](Self::invalidate) the entry of a key. Both run to their
    /// end in a task, also if the caller leaves. `write` is such as
    /// `async move { query.execute(&pool).await }`, and owns what it uses. Commit a transaction in it: what
    /// is loaded before the commit is old.
    ///
    /// If the write fails, the entry is invalidated too, since the write may have reached the source.
    ///
    /// # Errors
    /// The error of the write. That of the invalidation is in [`Changed::Pending`].
    ///
    /// # Panics
    /// If `write` panics, after the invalidation. Outside of a tokio runtime, or if it shuts down.
    ///
    /// # Cancel safety
    /// Once it has been polled, dropping it stops neither the write nor the invalidation.
    pub async fn change<T: Send + 'static, E: Send + 'static>(
        &self,
        key: &Key,
        write: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<Changed<T>, E> {
        let (handle, key) = (self.clone(), key.clone());
        change(write, async move { handle.invalidate(&key).await.map(drop) }).await
    }

    /// As [`change`](Self::change), for all entries [with a tag](Self::invalidate_tag).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn change_tag<T: Send + 'static, E: Send + 'static>(
        &self,
        tag: &Tag,
        write: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<Changed<T>, E> {
        let (handle, tag) = (self.clone(), tag.clone());
        change(write, async move { handle.invalidate_tag(&tag).await }).await
    }
}

crate::stats_source! { Handle => CacheStats, |it| it.statistics.name() }

crate::debug_fields! { Handle => |it| store = it.store }

/// The source has changed. What became of the entries that are older:
///
/// ```
/// use bellwether::{Cache, Changed};
///
/// async fn rename(names: &Cache<u64, String>, id: u64) -> Result<(), std::io::Error> {
///     let write = async move { Ok(()) }; // UPDATE names .. WHERE id = $1
///     match names.change(id, write).await {
///         Ok(Changed::Invalidated(())) => Ok(()),       // no later caller gets the old name
///         Ok(Changed::Pending((), error)) => {
///             eprintln!("the old name may be served until the store is back: {error}");
///             Ok(())                                    // the change itself was made
///         }
///         Err(error) => Err(error),                     // the write failed
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use = "the invalidation may be pending"]
#[allow(clippy::exhaustive_enums, reason = "an invalidation has happened or has not")]
pub enum Changed<T> {
    /// They are invalidated: no request that starts later gets one of them.
    Invalidated(T),
    /// The store failed. If the error [is pending](CacheError::is_pending), the store repeats the invalidation
    /// until it succeeds, and this process serves nothing of the key or the tag meanwhile. If not,
    /// invalidate again.
    Pending(T, CacheError),
}

impl<T> Changed<T> {
    /// The same of a part of what the write has returned.
    pub(crate) fn map<U>(self, part: impl FnOnce(T) -> U) -> Changed<U> {
        match self {
            Self::Invalidated(written) => Changed::Invalidated(part(written)),
            Self::Pending(written, error) => Changed::Pending(part(written), error),
        }
    }

    /// What the write has returned.
    pub fn into_inner(self) -> T {
        match self {
            Self::Invalidated(written) | Self::Pending(written, _) => written,
        }
    }
}

/// Writes, then invalidates, in a task that its caller may leave. A write that fails or panics may have
/// reached the source, so it is followed by an invalidation, too.
pub async fn change<T: Send + 'static, E: Send + 'static>(
    write: impl Future<Output = Result<T, E>> + Send + 'static,
    invalidation: impl Future<Output = Result<(), CacheError>> + Send + 'static,
) -> Result<Changed<T>, E> {
    change_by(write, |_| invalidation).await
}

/// As [`change`], with an invalidation that depends on what was written.
pub(crate) async fn change_by<T, E, F>(
    write: impl Future<Output = Result<T, E>> + Send + 'static,
    invalidation: impl FnOnce(Option<&T>) -> F + Send + 'static,
) -> Result<Changed<T>, E>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future<Output = Result<(), CacheError>> + Send + 'static,
{
    let both = async move {
        let written = AssertUnwindSafe(write).catch_unwind().await;
        let invalidation = invalidation(written.as_ref().ok().and_then(|it| it.as_ref().ok()));
        (written, invalidation.await)
    };
    let (written, invalidated) = match tokio::spawn(both.in_current_span()).await {
        Ok((Ok(written), invalidated)) => (written?, invalidated),
        Ok((Err(panic), _)) => resume_unwind(panic),
        Err(ended) => resume_unwind(ended.into_panic()),
    };
    Ok(match invalidated {
        Ok(()) => Changed::Invalidated(written),
        Err(error) => Changed::Pending(written, error),
    })
}

/// Makes a change to each of these keys once, and counts those that had an entry. If some fail, the error is one
/// that is not kept, if there is one.
async fn count_found<F: Future<Output = Result<bool, CacheError>>>(
    keys: impl IntoIterator<Item = Key>,
    change: impl Fn(Key) -> F,
) -> Result<usize, CacheError> {
    let keys: HashSet<_> = keys.into_iter().collect();
    let mut ended = stream::iter(keys.into_iter().map(change)).buffer_unordered(AT_ONCE);
    let mut found = Ok(0);
    while let Some(was_there) = ended.next().await {
        found = combined(found, was_there.map(usize::from), |found, one| found + one);
    }
    found
}

/// How many invalidations of one call are under way at once.
pub(crate) const AT_ONCE: usize = 256;

/// The results of two operations as one. If one of them has failed, the error is one that is not
/// [pending](CacheError::is_pending), if there is one.
fn combined<T>(
    one: Result<T, CacheError>,
    other: Result<T, CacheError>,
    add: impl FnOnce(T, T) -> T,
) -> Result<T, CacheError> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok(add(one, other)),
        (Err(kept), Err(error)) if kept.is_pending() => Err(error),
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
    }
}

/// The result of many operations: an error if one of them has failed. It is
/// [pending](CacheError::is_pending) only if those of all that have failed are.
///
/// # Errors
/// The first error that is not kept, or else one that is.
pub fn result_of_all(
    results: impl IntoIterator<Item = Result<(), CacheError>>,
) -> Result<(), CacheError> {
    let mut all = Ok(());
    for result in results {
        all = combined(all, result, |(), ()| ());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{StoreError, StoreErrorKind};
    use crate::key::Key;

    /// The result of an operation: an error, which is kept or not, or none.
    fn result(is_kept: Option<bool>) -> Result<(), CacheError> {
        let Some(is_kept) = is_kept else { return Ok(()) };
        let error = StoreError::new(StoreErrorKind::Unreachable, "down");
        let error = if is_kept { error.pending() } else { error };
        Err(CacheError::store(&Key::of("item"), &error))
    }

    /// Whether the error of these is kept.
    fn is_kept(results: &[Option<bool>]) -> Option<bool> {
        result_of_all(results.iter().copied().map(result)).err().map(|error| error.is_pending())
    }

    const KEPT: Option<bool> = Some(true);
    const LOST: Option<bool> = Some(false);
    const DONE: Option<bool> = None;

    #[test]
    fn the_error_of_many_is_kept_only_if_all_that_failed_are_in_any_order() {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        for order in orders {
            assert_eq!(is_kept(&order.map(|nth| [KEPT, LOST, DONE][nth])), LOST, "{order:?}");
            assert_eq!(is_kept(&order.map(|nth| [KEPT, KEPT, DONE][nth])), KEPT, "{order:?}");
        }
        assert_eq!(is_kept(&[DONE, DONE]), DONE);
    }

    #[test]
    fn what_was_done_is_added_up_only_without_an_error() {
        let failed = || result(KEPT).map(|()| 1);
        let add = |one, other| one + other;
        assert_eq!(combined(Ok(1), Ok(2), add).ok(), Some(3));
        assert!(combined(failed(), Ok(2), add).is_err());
        assert!(combined(Ok(1), failed(), add).is_err());
    }
}
