//! Changes that concern several entries: [`Invalidation`].

use std::future::Future;

use futures_util::stream::{self, StreamExt};

use crate::cache::Cache;
use crate::error::CacheError;
use crate::key::KeyOf;
use crate::read_through::handle::{AT_ONCE, Changed, Handle, change_by, result_of_all};
use crate::store::{Withdrawal, WithdrawalTarget};
use crate::tag::Tag;

/// What one write makes outdated: keys and tags of any caches, over any stores.
///
/// ```
/// use bellwether::change::Invalidation;
/// use bellwether::{Cache, Changed, Tag};
///
/// # struct Item { shelf: u64 }
/// # async fn rename(sku: u64) -> Result<Item, std::io::Error> { Ok(Item { shelf: 7 }) }
/// async fn renamed(
///     items: Cache<u64, String>,
///     lists: Cache<(String, u64), Vec<u64>>,
/// ) -> Result<(), std::io::Error> {
///     let known = Invalidation::new().key(&items, 42).tag(&lists, Tag::of("search"));
///     let write = async { rename(42).await }; // UPDATE items .. RETURNING *
///     let changed = known.change_with(write, move |item| {
///         Invalidation::new().key(&lists, ("shelf", item.shelf))
///     });
///     match changed.await? {
///         Changed::Invalidated(_item) => {}
///         Changed::Pending(_item, error) => eprintln!("not yet invalidated: {error}"),
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is invalidated before it is run"]
pub struct Invalidation(Vec<(Handle, WithdrawalTarget)>);

impl Invalidation {
    /// Of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the value of a key.
    pub fn key<K, V, C>(self, cache: &Cache<K, V, C>, key: impl KeyOf<K>) -> Self {
        self.target(cache.handle(), WithdrawalTarget::Key(cache.key(key)))
    }

    /// Adds all values with a tag, over the store of this cache.
    pub fn tag<K, V, C>(self, cache: &Cache<K, V, C>, tag: Tag) -> Self {
        self.target(cache.handle(), WithdrawalTarget::Tag(tag))
    }

    /// Adds a whole key or a tag, by the handle of a layer.
    pub fn target(mut self, handle: Handle, target: WithdrawalTarget) -> Self {
        self.0.push((handle, target));
        self
    }

    /// Invalidates all of it, as [`Handle::invalidate`] and [`Handle::invalidate_tag`] do, 256 at a time.
    /// It is not atomic: a caller may see some of it before the rest.
    ///
    /// # Errors
    /// As [`Handle::invalidate_many`].
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, each operation may have happened or not.
    pub async fn run(self) -> Result<(), CacheError> {
        let each = self.0.into_iter().map(|(handle, target)| async move {
            handle.withdraw(target, Withdrawal::Invalidate).await.map(drop)
        });
        result_of_all(stream::iter(each).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await)
    }

    /// Changes the source, and then runs. Both run to their end in a task, also if the caller leaves: see
    /// [`Handle::change`].
    ///
    /// # Errors
    /// The error of the write. That of the invalidation is in [`Changed::Pending`].
    ///
    /// # Panics
    /// As [`Handle::change`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn change<T: Send + 'static, E: Send + 'static>(
        self,
        write: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<Changed<T>, E> {
        self.change_with(write, |_| Self::new()).await
    }

    /// As [`change`](Self::change), together with what only the result of the write tells. If the write
    /// fails, or `more` panics, what was known before is invalidated.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there; and if `more` panics.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn change_with<T: Send + 'static, E: Send + 'static>(
        mut self,
        write: impl Future<Output = Result<T, E>> + Send + 'static,
        more: impl FnOnce(&T) -> Self + Send + 'static,
    ) -> Result<Changed<T>, E> {
        let write = async move {
            let written = write.await?;
            let more = more(&written);
            Ok((written, more))
        };
        let changed = change_by(write, |written: Option<&(T, Self)>| {
            self.0.extend(written.into_iter().flat_map(|(_, more)| more.0.iter().cloned()));
            self.run()
        });
        Ok(changed.await?.map(|(written, _)| written))
    }
}
