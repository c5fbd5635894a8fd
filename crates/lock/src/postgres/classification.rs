//! What the errors of a server mean.

use std::error::Error as _;

use bellwether::StoreErrorKind;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::session::SessionError;

/// What an error means. Nothing of the address is in any.
pub(super) fn meaning(error: &Error) -> SessionError {
    let Some(said) = error.as_db_error() else {
        // What it came of tells more than that it came.
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        return SessionError::broken(StoreErrorKind::Unreachable, format!("{error}{cause}"));
    };
    let (code, said) = (said.code(), format!("{}: {}", said.code().code(), said.message()));
    if *code == SqlState::UNDEFINED_TABLE {
        return SessionError::unprepared(said);
    }
    let is_of = |class: &str| code.code().starts_with(class);
    match () {
        // The operator or a timeout has ended the session; it says so before it ends.
        () if is_of("57P") && *code != SqlState::CANNOT_CONNECT_NOW => {
            SessionError::broken(StoreErrorKind::Unreachable, said)
        }
        () if *code == SqlState::CANNOT_CONNECT_NOW || is_of("53") => {
            SessionError::broken(StoreErrorKind::NotReady, said)
        }
        () if is_of("28") || is_of("3D") || *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            SessionError::refused(StoreErrorKind::Misconfigured, said)
        }
        // A setting that it does not know.
        () if *code == SqlState::UNDEFINED_OBJECT => {
            let said = format!("{said} (PostgreSQL must be 14 or later)");
            SessionError::refused(StoreErrorKind::Misconfigured, said)
        }
        () => SessionError::refused(StoreErrorKind::Refused, said),
    }
}

pub(super) fn malformed() -> SessionError {
    SessionError::broken(StoreErrorKind::Malformed, "the answer makes no sense")
}

/// Whether the wait was too long.
pub(super) fn is_late(error: &Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}
