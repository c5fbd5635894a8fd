//! A session with a server.

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_postgres::{Client, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::classification::{self, classify};
use super::options::{PostgresAddress, PostgresOptions};
use crate::LockError;
use crate::session::{DatabaseSession, authorities, client_config};

/// A connection.
pub(super) struct PostgresSession {
    pub(super) client: Client,
    /// The process of the server that runs the session.
    pub(super) pid: u64,
    ended: watch::Receiver<()>,
    connection: AbortHandle,
}

impl PostgresSession {
    pub(super) async fn run(&self, statements: &str) -> Result<(), LockError> {
        self.client.batch_execute(statements).await.map_err(classify)
    }

    /// Runs statements, and returns the first value of the very last row, which may be null.
    pub(super) async fn last(&self, statements: &str) -> Result<Option<String>, LockError> {
        let messages = self.client.simple_query(statements).await.map_err(classify)?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let last = rows.last().ok_or_else(LockError::malformed)?;
        Ok(last.try_get(0).map_err(classify)?.map(str::to_owned))
    }

    /// The same, as a number.
    pub(super) async fn number(&self, statements: &str) -> Result<Option<u64>, LockError> {
        let last = self.last(statements).await?;
        last.map(|text| text.parse().map_err(|_| LockError::malformed())).transpose()
    }
}

impl DatabaseSession for PostgresSession {
    const NAME: &'static str = "postgres";

    type Address = PostgresAddress;

    async fn open(options: &PostgresOptions) -> Result<Self, LockError> {
        let connected = options.address.0.connect(tls(options).await?).await;
        let (client, connection) = connected.map_err(classify)?;
        let (open, ended) = watch::channel(());
        let connection = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(target: "bellwether::lock", %error, "a session of postgres has ended");
            }
            drop(open);
        });
        let mut session = Self { client, pid: 0, ended, connection: connection.abort_handle() };
        let millis = options.session_timeout.as_millis();
        // The client cancels waits, not the server. A fence is given out when it is on disk: a server
        // that crashes would give it again. Only PostgreSQL 17 knows `transaction_timeout`.
        let settings = format!(
            "SET statement_timeout = 0; SET idle_session_timeout = {millis}; \
             SET synchronous_commit = on; SELECT set_config(name, '0', false) FROM pg_settings \
             WHERE name = 'transaction_timeout'; SELECT pg_backend_pid()"
        );
        session.pid = session.number(&settings).await?.ok_or_else(LockError::malformed)?;
        // Not every system supports this check. Without it, a waiter whose process was killed holds
        // the key for a moment.
        let _ = session.run("SET client_connection_check_interval = '500ms'").await;
        Ok(session)
    }

    fn is_unprepared(error: &LockError) -> bool {
        classification::is_unprepared(error)
    }

    fn interrupt(&self, options: &PostgresOptions) -> BoxFuture<'static, Result<(), LockError>> {
        let (statement, options) = (self.client.cancel_token(), options.clone());
        Box::pin(
            async move { statement.cancel_query(tls(&options).await?).await.map_err(classify) },
        )
    }

    fn ended(&self) -> BoxFuture<'static, ()> {
        let mut ended = self.ended.clone();
        Box::pin(async move {
            // No value is ever sent: an error is the end of the session.
            while ended.changed().await.is_ok() {}
        })
    }
}

/// Encrypts connections, if the address asks for that. Otherwise the driver does not use it.
async fn tls(options: &PostgresOptions) -> Result<MakeRustlsConnect, LockError> {
    let trusted = match options.is_encrypted {
        true => authorities(options.ca_file.as_deref()).await?,
        false => Vec::new(),
    };
    Ok(MakeRustlsConnect::new(client_config(trusted)?))
}

/// Dropping the client alone would wait for the answers to its requests.
impl Drop for PostgresSession {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
