//! A session with a server.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, FromValueError, Row};
use uuid::Uuid;

use super::MySqlOptions;
use super::classification::{classify, malformed};
use crate::session::SessionError;

/// A connection.
pub(super) struct MySqlSession {
    pub(super) conn: Conn,
    /// A comment in every statement that waits, so that an interruption hits no other statement:
    /// the numbers of connections repeat after a restart of the server.
    pub(super) tag: Uuid,
}

/// Finds the statement that a session waits for.
#[derive(Debug)]
pub(super) struct WaitingStatement {
    connection: u32,
    tag: Uuid,
}

impl MySqlSession {
    pub(super) async fn open(options: &MySqlOptions) -> Result<Self, SessionError> {
        let conn = Conn::new(options.connecting()).await.map_err(classify)?;
        Ok(Self { conn, tag: Uuid::new_v4() })
    }

    /// Runs statements.
    pub(super) async fn run(&mut self, statements: &str) -> Result<(), SessionError> {
        self.try_run(statements).await.map_err(classify)
    }

    pub(super) async fn try_run(&mut self, statements: &str) -> Result<(), Error> {
        self.conn.query_drop(statements).await
    }

    /// Runs statements, and returns the first value of the very last row. `None`: there was no row.
    pub(super) async fn last(
        &mut self,
        statements: &str,
    ) -> Result<Option<FirstValue>, SessionError> {
        self.try_last(statements).await.map_err(classify)
    }

    pub(super) async fn try_last(&mut self, statements: &str) -> Result<Option<FirstValue>, Error> {
        let mut results = self.conn.query_iter(statements).await?;
        let mut last = None;
        while !results.is_empty() {
            results.for_each(|row| last = Some(FirstValue(row))).await?;
        }
        // The error of a statement that failed after others is reported here.
        results.drop_result().await?;
        Ok(last)
    }

    /// Runs statements, and returns the first text of each row.
    pub(super) async fn texts(&mut self, statements: &str) -> Result<Vec<String>, SessionError> {
        let mut results = self.conn.query_iter(statements).await.map_err(classify)?;
        let mut texts = Vec::new();
        while !results.is_empty() {
            let of_row = |row: Row| texts.extend(row.get_opt(0).and_then(Result::ok));
            results.for_each(of_row).await.map_err(classify)?;
        }
        results.drop_result().await.map_err(classify)?;
        Ok(texts)
    }

    pub(super) fn waiting(&self) -> WaitingStatement {
        WaitingStatement { connection: self.conn.id(), tag: self.tag }
    }
}

impl WaitingStatement {
    /// Ends the statement, if it still runs.
    pub(super) async fn interrupt(&self, options: &MySqlOptions) -> Result<(), SessionError> {
        let mut session = MySqlSession::open(options).await?;
        let id = self.connection;
        let tag = self.tag;
        let find = format!(
            "SELECT 1 FROM information_schema.processlist WHERE id = {id} AND info LIKE '%{tag}%'"
        );
        if session.last(&find).await?.is_some() {
            session.run(&format!("KILL QUERY {id}")).await?;
        }
        Ok(())
    }
}

/// The first value of a row.
#[derive(Debug)]
pub(super) struct FirstValue(Row);

impl FirstValue {
    /// A number, or `NULL`.
    pub(super) fn number(&self) -> Result<Option<u64>, SessionError> {
        let number: Option<Result<Option<u64>, FromValueError>> = self.0.get_opt(0);
        number.and_then(Result::ok).ok_or_else(malformed)
    }
}
