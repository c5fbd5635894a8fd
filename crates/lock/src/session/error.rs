//! Errors of a session, and what each means for the session.

use std::fmt;
use std::time::Duration;

use bellwether::{BoxError, Key};

use crate::{LockError, LockErrorKind};

/// An error of a request to a database.
#[derive(Debug)]
pub(crate) struct SessionError {
    kind: LockErrorKind,
    message: String,
    effect: Effect,
    /// Whether the server had answered before that another claim has the name.
    was_busy: bool,
    source: Option<BoxError>,
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
        Self::new(kind, message, Effect::None)
    }

    /// The server does not know one of our tables.
    pub(crate) fn unprepared(message: impl Into<String>) -> Self {
        let kind = LockErrorKind::Misconfigured;
        Self::new(kind, message, Effect::Unprepared)
    }

    /// There is no session, or it cannot be used any more.
    pub(crate) fn broken(kind: LockErrorKind, message: impl Into<String>) -> Self {
        Self::new(kind, message, Effect::Broken)
    }

    fn new(kind: LockErrorKind, message: impl Into<String>, effect: Effect) -> Self {
        Self { kind, message: message.into(), effect, was_busy: false, source: None }
    }

    /// The server had answered that another claim has the name.
    pub(super) fn while_busy(self) -> Self {
        Self { was_busy: true, ..self }
    }

    /// There was no answer in time.
    pub(crate) fn late(limit: Duration) -> Self {
        Self::broken(LockErrorKind::NoReply, format!("no answer within {limit:?}"))
    }

    pub(crate) fn is_unprepared(&self) -> bool {
        self.effect == Effect::Unprepared
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.effect == Effect::Broken
    }

    /// Whether the session had ended before it was asked, if it was used before.
    pub(super) fn is_stale(&self) -> bool {
        self.is_broken() && !self.is_late() && !self.was_busy
    }

    pub(super) fn is_late(&self) -> bool {
        self.kind == LockErrorKind::NoReply
    }

    /// Adds the error of the driver.
    pub(crate) fn with_source(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    pub(crate) fn during(self, server: &str, what: &str, key: &Key) -> LockError {
        let message = format!("{server}, {what} `{key}`: {}", self.message);
        self.public(message)
    }

    pub(super) fn while_connecting(self, server: &str) -> LockError {
        let message = format!("{server}, connecting: {}", self.message);
        self.public(message)
    }

    fn public(self, message: String) -> LockError {
        let error = LockError::new(self.kind, message);
        let error = if self.was_busy { error.while_busy() } else { error };
        match self.source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
