//! A session with a server.

use std::time::Duration;

use futures_util::future::BoxFuture;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Row, SslOpts};
use uuid::Uuid;

use super::classification::{self, classify};
use super::options::{MySqlAddress, MySqlOptions};
use crate::LockError;
use crate::session::{DatabaseSession, authorities, install_provider};

/// A connection.
pub(super) struct MySqlSession {
    pub(super) conn: Conn,
    /// A comment in every statement that waits, so that an interruption hits no other statement:
    /// the numbers of connections repeat after a restart of the server.
    pub(super) tag: Uuid,
}

impl MySqlSession {
    /// Makes sure that the session lives.
    pub(super) async fn ping(&mut self) -> Result<(), LockError> {
        self.conn.ping().await.map_err(classify)
    }

    /// Runs statements.
    pub(super) async fn run(&mut self, statements: &str) -> Result<(), LockError> {
        self.try_run(statements).await.map_err(classify)
    }

    pub(super) async fn try_run(&mut self, statements: &str) -> Result<(), Error> {
        self.conn.query_drop(statements).await
    }

    /// The number that the last of these statements gives.
    pub(super) async fn number(&mut self, statements: &str) -> Result<Option<u64>, LockError> {
        let last = self.try_last(statements).await.map_err(classify)?;
        let number: Option<Result<Option<u64>, _>> = last.and_then(|row| row.get_opt(0));
        number.and_then(Result::ok).ok_or_else(LockError::malformed)
    }

    /// Runs statements, and returns the very last row, if there was any.
    pub(super) async fn try_last(&mut self, statements: &str) -> Result<Option<Row>, Error> {
        let mut results = self.conn.query_iter(statements).await?;
        let mut last = None;
        while !results.is_empty() {
            results.for_each(|row| last = Some(row)).await?;
        }
        // The error of a statement that failed after others is reported here.
        results.drop_result().await?;
        Ok(last)
    }

    /// Runs statements, and returns the first text of each row.
    pub(super) async fn texts(&mut self, statements: &str) -> Result<Vec<String>, LockError> {
        let mut results = self.conn.query_iter(statements).await.map_err(classify)?;
        let mut texts = Vec::new();
        while !results.is_empty() {
            let of_row = |row: Row| texts.extend(row.get_opt(0).and_then(Result::ok));
            results.for_each(of_row).await.map_err(classify)?;
        }
        results.drop_result().await.map_err(classify)?;
        Ok(texts)
    }
}

impl DatabaseSession for MySqlSession {
    const NAME: &'static str = "mysql";

    const LONGEST_PAUSE: Duration = Duration::from_millis(250);

    type Address = MySqlAddress;

    async fn open(options: &MySqlOptions) -> Result<Self, LockError> {
        let mut connecting = options.connecting();
        if options.is_encrypted {
            install_provider();
            let trusted = authorities(options.ca_file.as_deref()).await?;
            let trusted = trusted.into_iter().map(|trusted| trusted.to_vec().into()).collect();
            let tls = SslOpts::default().with_disable_built_in_roots(true).with_root_certs(trusted);
            connecting = connecting.ssl_opts(tls);
        }
        let conn = Conn::new(connecting).await.map_err(classify)?;
        Ok(Self { conn, tag: Uuid::new_v4() })
    }

    fn is_unprepared(error: &LockError) -> bool {
        classification::is_unprepared(error)
    }

    /// Ends the statement, if it still runs.
    fn interrupt(&self, options: &MySqlOptions) -> BoxFuture<'static, Result<(), LockError>> {
        let (id, tag, options) = (self.conn.id(), self.tag, options.clone());
        Box::pin(async move {
            let mut session = Self::open(&options).await?;
            let find = format!(
                "SELECT 1 FROM information_schema.processlist WHERE id = {id} AND info LIKE '%{tag}%'"
            );
            if session.try_last(&find).await.map_err(classify)?.is_some() {
                session.run(&format!("KILL QUERY {id}")).await?;
            }
            Ok(())
        })
    }
}
