//! What every lock by sessions can be told.

use std::time::Duration;

use bellwether::ConfigError;
use bellwether::adapter::namespace_of;
use bellwether::adapter::{duration_within, number_within};

use crate::drift::dependable;

/// What a lock by sessions goes by.
#[derive(Clone, Debug)]
pub(crate) struct SessionSettings {
    pub(crate) namespace: String,
    /// How long anything may take that does not wait for a holder.
    pub(crate) timeout: Duration,
    /// After how long a silence the server ends a session.
    pub(crate) session: Duration,
    pub(crate) connections: usize,
}

impl SessionSettings {
    pub(crate) fn namespace(self, namespace: &str) -> Result<Self, ConfigError> {
        Ok(Self { namespace: namespace_of(namespace)?, ..self })
    }

    pub(crate) fn timeout(self, timeout: Duration) -> Result<Self, ConfigError> {
        let [least, most] = [Duration::from_millis(1), Duration::from_secs(60)];
        let timeout = duration_within("timeout of the lock", timeout, least, most)?;
        Ok(Self { timeout, ..self })
    }

    pub(crate) fn session(self, session: Duration) -> Result<Self, ConfigError> {
        let [least, most] = [Duration::from_secs(1), Duration::from_secs(60 * 60)];
        let session = duration_within("session timeout of the lock", session, least, most)?;
        Ok(Self { session, ..self })
    }

    pub(crate) fn connections(self, connections: usize) -> Result<Self, ConfigError> {
        let connections = number_within("connections of the lock", connections, 1, 10_000)?;
        Ok(Self { connections, ..self })
    }

    /// How long after a question that was answered the session is there for certain. It is a little
    /// less than the server waits, for clocks that do not agree on how long a second is.
    pub(super) fn certain(&self) -> Duration {
        dependable(self.session)
    }

    /// How long after a question the next one is asked.
    pub(super) fn pause(&self) -> Duration {
        self.session / 3
    }
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            namespace: "default".to_owned(),
            timeout: Duration::from_secs(2),
            session: Duration::from_secs(6),
            connections: 64,
        }
    }
}
