//! `Migrations`: makes the table, its functions and triggers.

use sqlx::Pool;

use super::dialect::ChangesDatabase;
use super::table::ChangeTable;

/// Makes the table of changes and what fills it: in a PostgreSQL 14, MariaDB 10.6, or MySQL 8.0.29, or later.
///
/// ```no_run
/// # async fn migrate(pool: sqlx::PgPool) -> Result<(), sqlx::Error> {
/// use bellwether_sql::Migrations;
///
/// Migrations::new(pool).run().await?;
/// # Ok(())
/// # }
/// ```
///
/// [`Migrations::SQL`] is the same as a script, for migrations of your own.
#[derive(Debug)]
#[must_use]
pub struct Migrations<D: ChangesDatabase>(ChangeTable<D>);

impl<D: ChangesDatabase> Migrations<D> {
    /// What it runs. In PostgreSQL, it is for the schema `public`: for another one, replace `public.` by its name and a dot.
    pub const SQL: &str = D::STATEMENTS.schema;

    /// Of the database of a pool.
    pub fn new(pool: Pool<D>) -> Self {
        Self(ChangeTable::new(pool))
    }

    /// Sets the schema, which must be there. Only PostgreSQL has schemas in a database.
    ///
    /// Default: `public`, where functions are found by their names alone.
    pub fn schema(mut self, schema: &str) -> Self {
        schema.clone_into(&mut self.0.schema);
        self
    }

    /// Makes what is missing; in PostgreSQL in one transaction. It may be repeated, and by several processes at once.
    ///
    /// # Errors
    /// That of the database, such as a missing right or schema.
    ///
    /// # Cancel safety
    /// If it is dropped, all of it has happened or nothing; in MySQL a part of it.
    pub async fn run(&self) -> Result<(), sqlx::Error> {
        let mut transaction = self.0.pool.begin().await?;
        D::execute(&mut transaction, &self.0.sql(Self::SQL), &[]).await?;
        transaction.commit().await
    }
}
