//! The options of a lock in a PostgreSQL server.

use std::fmt;

use bellwether::ConfigError;
use tokio_postgres::Config;

use crate::session::{SessionSettings, session_options};

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

    session_options!("", "Servers allow 100 by default, for all their clients.");
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
