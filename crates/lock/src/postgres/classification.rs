//! Classifies the errors of a server.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::LockErrorKind;
use crate::session::{SessionError, is_of_tls, untrusted};

/// What an error means for the session. The messages contain nothing of the address.
pub(super) fn classify(error: Error) -> SessionError {
    let classified = match error.as_db_error() {
        Some(reported) => of_server(reported),
        None => {
            // The cause says more than the error itself.
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            // The driver does not tell in another way that the server offers no TLS.
            if is_of_tls(&error) || error.to_string().contains("TLS handshake") {
                return untrusted(format!("{error}{cause}")).with_source(error);
            }
            SessionError::broken(LockErrorKind::Unreachable, format!("{error}{cause}"))
        }
    };
    classified.with_source(error)
}

fn of_server(reported: &DbError) -> SessionError {
    let code = reported.code();
    let message = format!("{}: {}", code.code(), reported.message());
    if *code == SqlState::UNDEFINED_TABLE {
        return SessionError::unprepared(message);
    }
    let is_of = |class: &str| code.code().starts_with(class);
    match () {
        // The operator or a timeout ends the session. The server reports that before the end.
        () if is_of("57P") && *code != SqlState::CANNOT_CONNECT_NOW => {
            SessionError::broken(LockErrorKind::Unreachable, message)
        }
        () if *code == SqlState::CANNOT_CONNECT_NOW || is_of("53") => {
            SessionError::broken(LockErrorKind::NotReady, message)
        }
        () if is_of("28") || is_of("3D") || *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            SessionError::refused(LockErrorKind::Misconfigured, message)
        }
        // The server does not know a setting.
        () if *code == SqlState::UNDEFINED_OBJECT => {
            let message = format!("{message} (PostgreSQL must be 14 or later)");
            SessionError::refused(LockErrorKind::Misconfigured, message)
        }
        () => SessionError::refused(LockErrorKind::Refused, message),
    }
}

/// Whether the wait was too long.
pub(super) fn is_late(error: &Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}
