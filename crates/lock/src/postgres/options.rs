//! The options of a lock in a PostgreSQL server.

use std::fmt;
use std::time::Duration;

use bellwether::ConfigError;
use tokio_postgres::Config;

use crate::session::SessionSettings;

/// The options of a connection to a PostgreSQL server.
///
/// ```no_run
/// # async fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use bellwether_lock::{PostgresLock, PostgresOptions};
///
/// let options = PostgresOptions::new("postgresql://shop:secret@127.0.0.1/shop")?
///     .namespace("shop")?
///     .session_timeout(Duration::from_secs(10))?;
/// let lock = PostgresLock::connect(options).await?;
/// # let _ = lock;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) address: Config,
    pub(super) settings: SessionSettings,
}

impl PostgresOptions {
    /// Options for a `postgresql://` address.
    ///
    /// # Errors
    /// If the address is not valid. The message repeats no part of it, because any may be a
    /// password.
    pub fn new(url: &str) -> Result<Self, ConfigError> {
        let refused = || ConfigError::Url { reason: ADDRESS };
        if !["postgresql://", "postgres://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(refused());
        }
        let mut address: Config = url.parse().map_err(|_| refused())?;
        if address.get_hosts().is_empty() {
            return Err(refused());
        }
        if address.get_application_name().is_none() {
            address.application_name("bellwether");
        }
        Ok(Self { address, settings: SessionSettings::default() })
    }

    /// Sets the namespace of the keys. Services that share locks share a namespace.
    ///
    /// Default: `default`, so that one service needs no name.
    ///
    /// # Errors
    /// If it is not 1 to 64 of `A-Z a-z 0-9 _ . -`.
    pub fn namespace(self, namespace: &str) -> Result<Self, ConfigError> {
        Ok(Self { settings: self.settings.namespace(namespace)?, ..self })
    }

    /// Sets how long the server may take for an answer, and for a connection. The patience of the
    /// caller is added to it.
    ///
    /// Default: 2 s. A connection takes several round trips, and a database that is busy is not
    /// down.
    ///
    /// # Errors
    /// If it is not from 1 ms to 60 s.
    pub fn timeout(self, timeout: Duration) -> Result<Self, ConfigError> {
        Ok(Self { settings: self.settings.timeout(timeout)?, ..self })
    }

    /// Sets the session timeout: the server ends a session from which it receives nothing for so
    /// long. The keys of a holder that is stopped, or was killed with its machine, stay locked
    /// until then.
    ///
    /// Default: 6 s. A session sends a request every third of it, and a healthy process does not
    /// pause for two seconds.
    ///
    /// # Errors
    /// If it is not from 1 s to one hour.
    pub fn session_timeout(self, timeout: Duration) -> Result<Self, ConfigError> {
        Ok(Self { settings: self.settings.session(timeout)?, ..self })
    }

    /// Sets how many connections there may be at a time. Every claim has a connection of its own
    /// while it waits or holds. When all are in use, a claim waits for one, for its patience or the
    /// [`timeout`](Self::timeout), whichever is longer. A claim that stops waiting cancels its
    /// statement over one more connection, for a moment.
    ///
    /// Default: 64. Servers allow 100 by default, for all their clients.
    ///
    /// # Errors
    /// If it is not from 1 to 10,000.
    pub fn connections(self, connections: usize) -> Result<Self, ConfigError> {
        Ok(Self { settings: self.settings.connections(connections)?, ..self })
    }
}

/// Options for an address, with the defaults for everything else.
impl TryFrom<&str> for PostgresOptions {
    type Error = ConfigError;

    fn try_from(url: &str) -> Result<Self, ConfigError> {
        Self::new(url)
    }
}

/// As for `&str`.
impl TryFrom<&String> for PostgresOptions {
    type Error = ConfigError;

    fn try_from(url: &String) -> Result<Self, ConfigError> {
        Self::new(url)
    }
}

/// Shows where the server is, and neither user nor password.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("hosts", &self.address.get_hosts())
            .field("ports", &self.address.get_ports())
            .field("settings", &self.settings)
            .finish()
    }
}

const ADDRESS: &str = "it must be postgresql://[user[:password]@]host[:port][/database]";
