//! `ChangesDatabase`: a database that keeps the table of changes, and its statements.
#![allow(unnameable_types, reason = "it is sealed: there is one for each database")]
#![cfg_attr(
    not(any(feature = "mysql", feature = "postgres")),
    allow(unused_imports, unused_macros)
)]

use sqlx::{Database, Error, Pool};

/// A database that keeps the table of changes: `sqlx::Postgres` with the feature `postgres`, `sqlx::MySql` with the
/// feature `mysql`.
pub trait ChangesDatabase: Dialect {}

impl<D: Dialect> ChangesDatabase for D {}

/// What the databases differ in. The statements take the same values in the same order, and give rows as JSON.
pub trait Dialect: Database {
    const STATEMENTS: Statements;

    /// Begins a transaction that locks what it reads, and nothing between.
    const BEGIN: &str;

    /// The name of the schema, by which metrics know the table.
    fn schema(pool: &Pool<Self>) -> String;

    /// Hears of new rows, if the database tells: calls `heard` with whether it does, also for each row.
    fn listen(
        pool: &Pool<Self>,
        heard: impl Fn(bool) + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static;

    /// Runs a statement, and returns how many rows it has changed. Without values, it may be several.
    fn execute(
        connection: &mut Self::Connection,
        sql: &str,
        values: &[BoundValue<'_>],
    ) -> impl Future<Output = Result<u64, Error>> + Send;

    /// The only column of what a statement finds.
    fn fetch(
        connection: &mut Self::Connection,
        sql: &str,
        values: &[BoundValue<'_>],
    ) -> impl Future<Output = Result<Vec<String>, Error>> + Send;
}

/// A value of a statement.
#[derive(Clone, Copy, Debug)]
pub enum BoundValue<'a> {
    Number(i64),
    Text(&'a str),
}

/// The texts of the statements: each is described in its file.
#[derive(Clone, Copy, Debug)]
pub struct Statements {
    pub schema: &'static str,
    pub insert: &'static str,
    pub take: &'static str,
    pub applied: &'static str,
    pub note: &'static str,
    pub register: &'static str,
    pub forget: &'static str,
    pub retry: &'static str,
    pub backlog: &'static str,
    pub times: &'static str,
    pub applied_after: &'static str,
    pub delete_applied: &'static str,
    pub delete_failed: &'static str,
}

/// The statements in the files of a folder.
macro_rules! statements {
    ($folder:literal, $($name:ident),*) => {
        Statements {
            $($name: include_str!(concat!("../sql/", $folder, "/", stringify!($name), ".sql"))),*
        }
    };
    ($folder:literal) => {
        statements!(
            $folder, schema, insert, take, applied, note, register, forget, retry, backlog, times,
            applied_after, delete_applied, delete_failed
        )
    };
}

/// What is the same text for all databases, and not the same types.
macro_rules! run_statements {
    () => {
        async fn execute(
            connection: &mut Self::Connection,
            sql: &str,
            values: &[BoundValue<'_>],
        ) -> Result<u64, Error> {
            let done = match values {
                [] => connection.execute(sqlx::raw_sql(sql)).await?,
                _ => connection.execute(bound!(sqlx::query(sql), values)).await?,
            };
            Ok(done.rows_affected())
        }

        async fn fetch(
            connection: &mut Self::Connection,
            sql: &str,
            values: &[BoundValue<'_>],
        ) -> Result<Vec<String>, Error> {
            bound!(sqlx::query_scalar(sql), values).fetch_all(connection).await
        }
    };
}

macro_rules! bound {
    ($query:expr, $values:expr) => {
        $values.iter().fold($query, |query, value| match *value {
            BoundValue::Number(number) => query.bind(number),
            BoundValue::Text(text) => query.bind(text),
        })
    };
}

pub(crate) use {bound, run_statements, statements};
