//! `Migrations`: makes the table, its functions and triggers.

use sqlx::Executor;
use sqlx::postgres::PgPool;

use super::table::quoted;

/// Makes the table of changes, its functions and triggers, in a PostgreSQL of version 14 or later.
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
#[derive(Clone, Debug)]
#[must_use]
pub struct Migrations {
    pool: PgPool,
    schema: String,
}

impl Migrations {
    /// What it runs, for the schema `public`. For another one, replace `public.` by its name and a dot.
    pub const SQL: &str = include_str!("../sql/postgres.sql");

    /// Of the database of a pool.
    pub fn new(pool: PgPool) -> Self {
        Self { pool, schema: "public".to_owned() }
    }

    /// Sets the schema, which must be there.
    ///
    /// Default: `public`, where functions are found by their names alone.
    pub fn schema(self, schema: &str) -> Self {
        Self { schema: schema.to_owned(), ..self }
    }

    /// Makes what is missing, in one transaction. It may be repeated, and by several processes at once.
    ///
    /// # Errors
    /// That of the database, such as a missing right or schema.
    ///
    /// # Cancel safety
    /// If it is dropped, all of it has happened or nothing.
    pub async fn run(&self) -> Result<(), sqlx::Error> {
        let sql = Self::SQL.replace("public.", &format!("{}.", quoted(&self.schema)));
        let mut transaction = self.pool.begin().await?;
        // Two at once would make the same table.
        sqlx::query("SELECT pg_advisory_xact_lock(hashtext('bellwether'))")
            .execute(&mut *transaction)
            .await?;
        (&mut *transaction).execute(sqlx::raw_sql(&sql)).await?;
        transaction.commit().await
    }
}
