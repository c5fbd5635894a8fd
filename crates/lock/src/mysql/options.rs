//! The options of a lock in a MariaDB or MySQL server.

use std::fmt;

use bellwether::ConfigError;
use mysql_async::{Opts, OptsBuilder};

use crate::session::{SessionSettings, session_options};

/// The options of a connection to a MariaDB or MySQL server.
///
/// ```no_run
/// # async fn options() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use bellwether_lock::{MySqlLock, MySqlOptions};
///
/// let options = MySqlOptions::new("mysql://shop:secret@127.0.0.1/shop")?
///     .namespace("shop")?
///     .session_timeout(Duration::from_secs(10))?;
/// let lock = MySqlLock::connect(options).await?;
/// # let _ = lock;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MySqlOptions {
    pub(super) address: Opts,
    pub(super) settings: SessionSettings,
}

impl MySqlOptions {
    /// Options for a `mysql://` address with a database, which has the tables of the locks.
    ///
    /// # Errors
    /// If the address is not valid. The message repeats no part of it, because any may be a
    /// password.
    pub fn new(url: &str) -> Result<Self, ConfigError> {
        let refused = || ConfigError::Url { reason: ADDRESS };
        let address = Opts::from_url(url).map_err(|_| refused())?;
        if address.db_name().is_none_or(str::is_empty) {
            return Err(refused());
        }
        Ok(Self { address, settings: SessionSettings::default() })
    }

    session_options!(
        "The server counts whole seconds, so it may take up to one second longer.",
        "Servers allow 151 by default, for all their clients."
    );

    /// The options of the client.
    pub(super) fn connecting(&self) -> OptsBuilder {
        let SessionSettings { session, timeout, .. } = &self.settings;
        let seconds = session.as_secs() + u64::from(session.subsec_nanos() > 0);
        let wait = timeout.as_secs().max(1);
        let silence = format!(
            "SET SESSION wait_timeout = {seconds}, innodb_lock_wait_timeout = {wait}, autocommit = 1"
        );
        // Settings that are given here need no request. The address is not replaced by a socket.
        OptsBuilder::from_opts(self.address.clone())
            .prefer_socket(false)
            .max_allowed_packet(Some(PACKET))
            .wait_timeout(Some(usize::try_from(seconds).unwrap_or(usize::MAX)))
            .tcp_keepalive(Some(*session))
            .tcp_nodelay(true)
            .setup(vec!["SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".into(), silence])
    }
}

/// Options for an address, with the defaults for everything else.
impl TryFrom<&str> for MySqlOptions {
    type Error = ConfigError;

    fn try_from(url: &str) -> Result<Self, ConfigError> {
        Self::new(url)
    }
}

/// As for `&str`.
impl TryFrom<&String> for MySqlOptions {
    type Error = ConfigError;

    fn try_from(url: &String) -> Result<Self, ConfigError> {
        Self::new(url)
    }
}

/// Shows where the server is, and neither user nor password.
impl fmt::Debug for MySqlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = (self.address.ip_or_hostname(), self.address.tcp_port());
        f.debug_struct("MySqlOptions")
            .field("address", &format_args!("{}:{}", address.0, address.1))
            .field("settings", &self.settings)
            .finish()
    }
}

const ADDRESS: &str = "it must be mysql://[user[:password]@]host[:port]/database";

/// The longest packet, in bytes. Ours are short.
const PACKET: usize = 1 << 20;
