//! `ChangeTransaction`: a transaction that invalidates what it has changed.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use bellwether::adapter::{change, result_of_all};
use bellwether::service::Handle;
use bellwether::stats::StatsSource;
use bellwether::store::{Withdrawal, WithdrawalTarget};
use bellwether::{Cache, Changed, KeyOf, Tag};
use futures_util::stream::{self, StreamExt};
use sqlx::Transaction;

use super::dialect::ChangesDatabase;
use super::table::{ChangeTable, NewRow, new_row};

/// A transaction that invalidates what it has changed. Made by
/// [`ChangeLog::begin`](crate::ChangeLog::begin).
///
/// Statements run on `&mut *transaction`, a connection of the database. If it is dropped, it is rolled back.
#[must_use = "it is rolled back unless it is committed"]
pub struct ChangeTransaction<D: ChangesDatabase> {
    table: ChangeTable<D>,
    transaction: Transaction<'static, D>,
    rows: Vec<NewRow>,
    /// What the rows say, for the caches of this process.
    invalidations: Vec<(Handle, WithdrawalTarget, Withdrawal)>,
}

impl<D: ChangesDatabase> ChangeTransaction<D> {
    pub(crate) async fn begin(table: ChangeTable<D>) -> Result<Self, sqlx::Error> {
        let transaction = table.pool.begin().await?;
        Ok(Self { table, transaction, rows: Vec::new(), invalidations: Vec::new() })
    }

    /// The value of a key is to be [invalidated](Cache::invalidate) with the commit.
    pub fn invalidate<K, V, C>(&mut self, cache: &Cache<K, V, C>, key: impl KeyOf<K>) {
        let key = WithdrawalTarget::Key(cache.key(key));
        self.add(cache, cache.name(), key, Withdrawal::Invalidate);
    }

    /// The value of a key is to become [stale](Cache::expire) with the commit.
    pub fn expire<K, V, C>(&mut self, cache: &Cache<K, V, C>, key: impl KeyOf<K>) {
        let key = WithdrawalTarget::Key(cache.key(key));
        self.add(cache, cache.name(), key, Withdrawal::EXPIRE);
    }

    /// All entries with a tag are to be [invalidated](Handle::invalidate_tag), in the store of a cache.
    pub fn invalidate_tag<K, V, C>(&mut self, cache: &Cache<K, V, C>, tag: &Tag) {
        self.add(cache, tag.kind(), WithdrawalTarget::Tag(tag.clone()), Withdrawal::Invalidate);
    }

    /// All entries with a tag are to become stale [over a time](Handle::expire_tag), in the store of a cache.
    pub fn expire_tag<K, V, C>(&mut self, cache: &Cache<K, V, C>, tag: &Tag, spread: Duration) {
        let change = Withdrawal::Expire { over: spread };
        self.add(cache, tag.kind(), WithdrawalTarget::Tag(tag.clone()), change);
    }

    fn add<K, V, C>(
        &mut self,
        cache: &Cache<K, V, C>,
        name: &str,
        target: WithdrawalTarget,
        change: Withdrawal,
    ) {
        self.rows.push(new_row(name, &target, change));
        self.invalidations.push((cache.handle(), target, change));
    }

    /// Writes what has changed as rows, commits, and invalidates at once: without a wait for a follower, and
    /// without a message to one. A follower finds the rows within its [`poll`](crate::Follower::poll) interval and
    /// repeats them: in other regions, for other versions of a cache, and for this process, which may have died.
    ///
    /// If the commit fails, it is invalidated too, since the commit may have happened.
    ///
    /// # Errors
    /// That of the database. A failed invalidation is [`Changed::Pending`]: a follower repeats it.
    ///
    /// # Panics
    /// Outside of a tokio runtime, or if it shuts down.
    ///
    /// # Cancel safety
    /// Once it has been polled, dropping it stops neither the commit nor the invalidation.
    pub async fn commit(self) -> Result<Changed<()>, sqlx::Error> {
        let Self { table, mut transaction, rows, invalidations } = self;
        let write = async move {
            if !rows.is_empty() {
                table.insert(&mut transaction, &rows, true).await?;
            }
            transaction.commit().await
        };
        // The rows stay pending: other regions and other versions need them, of which only followers know.
        let invalidate = async move {
            let each = invalidations.into_iter().map(|(handle, target, change)| async move {
                handle.withdraw(target, change).await.map(drop)
            });
            let results: Vec<_> = stream::iter(each).buffer_unordered(AT_ONCE).collect().await;
            result_of_all(results)
        };
        change(write, invalidate).await
    }
}

impl<D: ChangesDatabase> Deref for ChangeTransaction<D> {
    type Target = D::Connection;

    fn deref(&self) -> &D::Connection {
        &self.transaction
    }
}

impl<D: ChangesDatabase> DerefMut for ChangeTransaction<D> {
    fn deref_mut(&mut self) -> &mut D::Connection {
        &mut self.transaction
    }
}

impl<D: ChangesDatabase> fmt::Debug for ChangeTransaction<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeTransaction").field("rows", &self.rows.len()).finish_non_exhaustive()
    }
}

/// How many invalidations of one transaction are under way at once.
const AT_ONCE: usize = 256;
