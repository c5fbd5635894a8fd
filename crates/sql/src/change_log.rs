//! `ChangeLog`: records changes in the transaction that makes them.

use std::time::Duration;

use bellwether::stats::StatsSource;
use bellwether::store::{Withdrawal, WithdrawalTarget};
use bellwether::{Cache, KeyOf, Tag};
use sqlx::Pool;

use super::dialect::ChangesDatabase;
use super::table::{ChangeTable, new_row};
use super::transaction::ChangeTransaction;

/// Records changes in the transaction that makes them: a crash can part neither from the other.
///
/// ```no_run
/// use bellwether::{Cache, Changed};
/// use bellwether_sql::ChangeLog;
///
/// async fn reprice(changes: &ChangeLog<sqlx::Postgres>, prices: &Cache<i64, i64>, sku: i64, price: i64) -> Result<(), sqlx::Error> {
///     let mut transaction = changes.begin().await?;
///     sqlx::query("UPDATE items SET price = $2 WHERE id = $1").bind(sku).bind(price).execute(&mut *transaction).await?;
///     transaction.invalidate(prices, sku);
///     match transaction.commit().await? {
///         Changed::Invalidated(()) => {}  // no later caller gets the old price
///         Changed::Pending((), error) => { // a follower will see to it
///             eprintln!("the old price may be served for a while: {error}");
///         }
///     }
///     Ok(())
/// }
/// ```
///
/// [`begin`](Self::begin) also invalidates right after the commit. The other calls only write a row, in a
/// transaction of your own, and leave the rest to a [`Follower`](crate::Follower).
#[derive(Debug)]
pub struct ChangeLog<D: ChangesDatabase> {
    table: ChangeTable<D>,
}

impl<D: ChangesDatabase> Clone for ChangeLog<D> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone() }
    }
}

impl<D: ChangesDatabase> ChangeLog<D> {
    /// In the database of a pool.
    pub fn new(pool: Pool<D>) -> Self {
        Self { table: ChangeTable::new(pool) }
    }

    /// Sets the schema of the table, in PostgreSQL.
    ///
    /// Default: `public`.
    #[must_use]
    pub fn schema(mut self, schema: &str) -> Self {
        schema.clone_into(&mut self.table.schema);
        self
    }

    /// Begins a transaction that invalidates what it has changed.
    ///
    /// # Errors
    /// That of the database.
    ///
    /// # Cancel safety
    /// If it is dropped, nothing has happened.
    pub async fn begin(&self) -> Result<ChangeTransaction<D>, sqlx::Error> {
        ChangeTransaction::begin(self.table.clone()).await
    }

    /// Records, in the transaction of a connection, that a value is to be [invalidated](Cache::invalidate).
    ///
    /// # Errors
    /// That of the database. Then the transaction has failed.
    ///
    /// # Cancel safety
    /// If it is dropped, the row may be part of the transaction or not.
    pub async fn invalidate<K, V, C>(
        &self,
        connection: &mut D::Connection,
        cache: &Cache<K, V, C>,
        key: impl KeyOf<K>,
    ) -> Result<(), sqlx::Error> {
        let key = WithdrawalTarget::Key(cache.key(key));
        self.write(connection, cache.name(), key, Withdrawal::Invalidate).await
    }

    /// As [`invalidate`](Self::invalidate), to make a value [stale](Cache::expire).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn expire<K, V, C>(
        &self,
        connection: &mut D::Connection,
        cache: &Cache<K, V, C>,
        key: impl KeyOf<K>,
    ) -> Result<(), sqlx::Error> {
        let key = WithdrawalTarget::Key(cache.key(key));
        self.write(connection, cache.name(), key, Withdrawal::EXPIRE).await
    }

    /// As [`invalidate`](Self::invalidate), for all entries with a tag.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn invalidate_tag(
        &self,
        connection: &mut D::Connection,
        tag: &Tag,
    ) -> Result<(), sqlx::Error> {
        let target = WithdrawalTarget::Tag(tag.clone());
        self.write(connection, tag.kind(), target, Withdrawal::Invalidate).await
    }

    /// As [`invalidate_tag`](Self::invalidate_tag), to make the entries stale
    /// [over a time](bellwether::service::Handle::expire_tag).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn expire_tag(
        &self,
        connection: &mut D::Connection,
        tag: &Tag,
        spread: Duration,
    ) -> Result<(), sqlx::Error> {
        let target = WithdrawalTarget::Tag(tag.clone());
        self.write(connection, tag.kind(), target, Withdrawal::Expire { over: spread }).await
    }

    async fn write(
        &self,
        connection: &mut D::Connection,
        name: &str,
        target: WithdrawalTarget,
        change: Withdrawal,
    ) -> Result<(), sqlx::Error> {
        self.table.insert(connection, &[new_row(name, &target, change)], false).await
    }
}
