//! The settings that all locks by sessions have.

use std::time::Duration;

use bellwether::ConfigError;
use bellwether::adapter::namespace_of;
use bellwether::adapter::within;

use crate::drift::dependable;

/// The settings of a lock by sessions.
#[derive(Clone, Debug)]
pub(crate) struct SessionSettings {
    pub(crate) namespace: String,
    /// How long a request may take, besides the wait for a holder.
    pub(crate) timeout: Duration,
    /// The session timeout: the server ends a session from which it receives nothing for so long.
    pub(crate) session: Duration,
    pub(crate) connections: usize,
}

impl SessionSettings {
    pub(crate) fn new(namespace: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            namespace: namespace_of(namespace)?,
            timeout: Duration::from_secs(2),
            session: Duration::from_secs(6),
            connections: 64,
        })
    }

    pub(crate) fn timeout(self, timeout: Duration) -> Result<Self, ConfigError> {
        let [least, most] = [Duration::from_millis(1), Duration::from_secs(60)];
        let timeout = within("timeout of the lock", timeout, least, most)?;
        Ok(Self { timeout, ..self })
    }

    pub(crate) fn session(self, session: Duration) -> Result<Self, ConfigError> {
        let [least, most] = [Duration::from_secs(1), Duration::from_secs(60 * 60)];
        let session = within("session timeout of the lock", session, least, most)?;
        Ok(Self { session, ..self })
    }

    pub(crate) fn connections(self, connections: usize) -> Result<Self, ConfigError> {
        let connections = within("connections of the lock", connections, 1, 10_000)?;
        Ok(Self { connections, ..self })
    }

    /// How long after an answered request the session exists for certain. It is 1 % and 2 ms less
    /// than the session timeout, because clocks run at different speeds.
    pub(super) fn certain(&self) -> Duration {
        dependable(self.session)
    }

    /// How long after a request the next one is sent.
    pub(super) fn pause(&self) -> Duration {
        self.session / 3
    }
}
