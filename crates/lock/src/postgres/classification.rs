//! Classifies the errors of a server.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::session::{is_of_tls, untrusted};
use crate::{LockError, LockErrorKind};

/// What an error means for the session. The messages contain nothing of the address.
pub(super) fn classify(error: Error) -> LockError {
    let classified = match error.as_db_error() {
        Some(reported) => of_server(reported),
        None => {
            // The cause says more than the error itself.
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            // The driver does not tell in another way that the server offers no TLS.
            if is_of_tls(&error) || error.to_string().contains("TLS handshake") {
                return untrusted(format!("{error}{cause}")).with_source(error);
            }
            LockError::new(LockErrorKind::Unreachable, format!("{error}{cause}"))
        }
    };
    classified.with_source(error)
}

fn of_server(reported: &DbError) -> LockError {
    let code = reported.code();
    let is_of = |class: &str| code.code().starts_with(class);
    let kind = match () {
        () if *code == SqlState::CANNOT_CONNECT_NOW || is_of("53") => LockErrorKind::NotReady,
        // The operator or a timeout ends the session. The server reports that before the end.
        () if is_of("57P") => LockErrorKind::Unreachable,
        () if is_of("28") || is_of("3D") || MISCONFIGURED.contains(code) => {
            LockErrorKind::Misconfigured
        }
        () => LockErrorKind::Refused,
    };
    // The server does not know a setting.
    let is_old = *code == SqlState::UNDEFINED_OBJECT;
    let advice = if is_old { " (PostgreSQL must be 14 or later)" } else { "" };
    LockError::new(kind, format!("{}: {}{advice}", code.code(), reported.message()))
}

/// Whether the sequence is missing.
pub(super) fn is_unprepared(error: &LockError) -> bool {
    let error: Option<&Error> = error.source().and_then(|source| source.downcast_ref());
    error.and_then(Error::code) == Some(&SqlState::UNDEFINED_TABLE)
}

/// Whether the wait was too long.
pub(super) fn is_late(error: &Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// The user lacks a right, the sequence is missing, the server does not know a setting.
const MISCONFIGURED: [SqlState; 3] =
    [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_OBJECT];
