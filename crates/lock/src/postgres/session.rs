//! A session with a server.

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

use super::PostgresOptions;
use super::classification::{classify, malformed};
use crate::session::SessionError;

/// A connection.
pub(super) struct PostgresSession {
    pub(super) client: Client,
    pub(super) ended: watch::Receiver<()>,
    connection: AbortHandle,
}

impl PostgresSession {
    pub(super) async fn open(options: &PostgresOptions) -> Result<Self, SessionError> {
        let connected = options.address.0.connect(NoTls).await;
        let (client, connection) = connected.map_err(classify)?;
        let (open, ended) = watch::channel(());
        let connection = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(target: "bellwether::lock", %error, "a session of postgres has ended");
            }
            drop(open);
        });
        let session = Self { client, ended, connection: connection.abort_handle() };
        let millis = options.settings.session.as_millis();
        // The client cancels waits, not the server.
        session
            .run(&format!("SET statement_timeout = 0; SET idle_session_timeout = {millis}"))
            .await?;
        // Not every system supports this check. Without it, a waiter whose process was killed holds
        // the key for a moment.
        let _ = session.run("SET client_connection_check_interval = '500ms'").await;
        Ok(session)
    }

    pub(super) async fn run(&self, statements: &str) -> Result<(), SessionError> {
        self.client.batch_execute(statements).await.map_err(classify)
    }

    /// Runs statements, and returns the first value of the very last row, which may be null.
    pub(super) async fn last(&self, statements: &str) -> Result<Option<String>, SessionError> {
        self.try_last(statements).await.map_err(classify)?.ok_or_else(malformed)
    }

    pub(super) async fn try_last(&self, statements: &str) -> Result<Option<Option<String>>, Error> {
        let messages = self.client.simple_query(statements).await?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let last = rows.last().map(|row| row.try_get(0)).transpose()?;
        Ok(last.map(|value| value.map(str::to_owned)))
    }
}

/// Dropping the client alone would wait for the answers to its requests.
impl Drop for PostgresSession {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
