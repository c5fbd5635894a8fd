//! Trouble: what comes of a question to a database instead of an answer.

use std::fmt;
use std::time::Duration;

use bellwether::{Key, StoreError, StoreErrorKind};

/// What came of a question instead of an answer.
#[derive(Debug)]
pub(crate) struct SessionError {
    kind: StoreErrorKind,
    said: String,
    effect: Effect,
}

/// What it means for the session.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    /// It is as it was.
    None,
    /// A table of ours is missing.
    Unprepared,
    /// It has ended, or may as well have.
    Broken,
}

impl SessionError {
    /// The server answered that it will not.
    pub(crate) fn refused(kind: StoreErrorKind, said: impl Into<String>) -> Self {
        Self { kind, said: said.into(), effect: Effect::None }
    }

    /// The server answered that it does not know a table of ours.
    pub(crate) fn unprepared(said: impl Into<String>) -> Self {
        let kind = StoreErrorKind::Misconfigured;
        Self { kind, said: said.into(), effect: Effect::Unprepared }
    }

    /// There is no session, or none that can be used any more.
    pub(crate) fn broken(kind: StoreErrorKind, said: impl Into<String>) -> Self {
        Self { kind, said: said.into(), effect: Effect::Broken }
    }

    /// There was no answer in time.
    pub(crate) fn late(limit: Duration) -> Self {
        Self::broken(StoreErrorKind::TimedOut, format!("no answer within {limit:?}"))
    }

    pub(crate) fn is_unprepared(&self) -> bool {
        self.effect == Effect::Unprepared
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.effect == Effect::Broken
    }

    pub(super) fn is_late(&self) -> bool {
        self.kind == StoreErrorKind::TimedOut
    }

    pub(crate) fn during(self, server: &str, what: &str, key: &Key) -> StoreError {
        StoreError::new(self.kind, format!("{server}, {what} `{key}`: {}", self.said))
    }

    pub(super) fn while_connecting(self, server: &str) -> StoreError {
        StoreError::new(self.kind, format!("{server}, connecting: {}", self.said))
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}
