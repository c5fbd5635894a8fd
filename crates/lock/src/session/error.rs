//! Errors of a session, and what each means for the session.

use std::fmt;
use std::time::Duration;

use bellwether::{BoxError, Key};

use crate::{LockError, LockErrorKind};

/// An error of a request to a database.
#[derive(Debug)]
pub(crate) struct SessionError {
    error: LockError,
    effect: Effect,
}

/// What an error means for the session.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    /// The session can be used as before.
    None,
    /// One of our tables is missing.
    Unprepared,
    /// The session has ended, or cannot be used any more.
    Broken,
}

impl SessionError {
    /// The server refused the request.
    pub(crate) fn refused(kind: LockErrorKind, message: impl Into<String>) -> Self {
        Self { error: LockError::new(kind, message), effect: Effect::None }
    }

    /// The server does not know one of our tables.
    pub(crate) fn unprepared(message: impl Into<String>) -> Self {
        let error = LockError::new(LockErrorKind::Misconfigured, message);
        Self { error, effect: Effect::Unprepared }
    }

    /// There is no session, or it cannot be used any more.
    pub(crate) fn broken(kind: LockErrorKind, message: impl Into<String>) -> Self {
        Self { error: LockError::new(kind, message), effect: Effect::Broken }
    }

    /// There was no answer in time.
    pub(crate) fn late(limit: Duration) -> Self {
        Self::broken(LockErrorKind::NoReply, format!("no answer within {limit:?}"))
    }

    /// The answer is none that the request can have.
    pub(crate) fn malformed() -> Self {
        Self::broken(LockErrorKind::Malformed, "the answer is malformed")
    }

    /// The server had answered that another claim has the name.
    pub(super) fn while_busy(self) -> Self {
        Self { error: self.error.while_busy(), ..self }
    }

    /// Adds the error of the driver.
    pub(crate) fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { error: self.error.with_source(source), ..self }
    }

    pub(crate) fn is_unprepared(&self) -> bool {
        self.effect == Effect::Unprepared
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.effect == Effect::Broken
    }

    /// Whether the session had ended before it was asked, if it was used before.
    pub(super) fn is_stale(&self) -> bool {
        self.is_broken() && !self.is_late() && !self.error.was_busy()
    }

    pub(super) fn is_late(&self) -> bool {
        self.error.kind() == LockErrorKind::NoReply
    }

    /// The public error, which says what was done.
    pub(crate) fn during(self, server: &str, what: &str, key: Option<&Key>) -> LockError {
        let of = key.map(|key| format!(" `{key}`")).unwrap_or_default();
        self.error.during(&format!("{server}, {what}{of}"))
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}
