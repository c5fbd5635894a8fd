//! Classifies the errors of a server.

use std::error::Error as _;

use mysql_async::{DriverError, Error, ServerError};

use crate::session::{is_of_tls, untrusted};
use crate::{LockError, LockErrorKind};

/// What an error means for the session. The messages contain nothing of the address.
pub(super) fn classify(error: Error) -> LockError {
    match &error {
        Error::Server(server_error) => of_server(server_error).with_source(error),
        Error::Io(io_error) if is_of_tls(&error) => {
            untrusted(io_error.to_string()).with_source(error)
        }
        Error::Driver(DriverError::NoClientSslFlagFromServer) => {
            untrusted("the server offers no TLS").with_source(error)
        }
        Error::Io(io_error) => {
            let message = io_error.to_string();
            LockError::new(LockErrorKind::Unreachable, message).with_source(error)
        }
        // Other errors of the driver may contain bytes that the server sent, so they are not shown.
        Error::Driver(DriverError::ConnectionClosed) => {
            LockError::new(LockErrorKind::Unreachable, "the connection is closed")
        }
        Error::Driver(_) | Error::Other(_) | Error::Url(_) => LockError::malformed(),
    }
}

fn of_server(error: &ServerError) -> LockError {
    let kind = match error.code {
        code if SESSION_ENDED.contains(&code) => LockErrorKind::Unreachable,
        code if MISCONFIGURED.contains(&code) => LockErrorKind::Misconfigured,
        code if TRANSIENT.contains(&code) => LockErrorKind::NotReady,
        _ => LockErrorKind::Refused,
    };
    LockError::new(kind, format!("error {}: {}", error.code, error.message))
}

/// Whether one of our tables is missing.
pub(super) fn is_unprepared(error: &LockError) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref());
    matches!(source, Some(Error::Server(error)) if error.code == NO_SUCH_TABLE)
}

/// Whether another claim has the row. MariaDB reports a lock wait timeout even for `NOWAIT`.
pub(super) fn is_locked(error: &Error) -> bool {
    matches!(error, Error::Server(error) if [LOCK_WAIT_TIMEOUT, LOCK_NOWAIT].contains(&error.code))
}

pub(super) fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Server(error) if MISCONFIGURED.contains(&error.code))
}

const NO_SUCH_TABLE: u16 = 1146;
const LOCK_WAIT_TIMEOUT: u16 = 1205;
/// Of MySQL 8.
const LOCK_NOWAIT: u16 = 3572;

/// The server shuts down, the connection was killed, it was silent for too long (MySQL 8).
const SESSION_ENDED: [u16; 4] = [1053, 1927, 3169, 4031];

/// No right to the database, a wrong password, no such database, no right to the table, no such table,
/// no right to the statement, a user that must connect another way.
const MISCONFIGURED: [u16; 8] = [1044, 1045, 1049, 1142, 1143, NO_SUCH_TABLE, 1227, 1698];

/// Too many connections, out of memory or of threads, too many connections of the user, read only
/// for now.
const TRANSIENT: [u16; 6] = [1040, 1041, 1135, 1203, 1226, 1290];

#[cfg(test)]
mod tests {
    use bellwether::Key;

    use super::*;

    fn server_error(code: u16) -> Error {
        let message = "no".to_owned();
        let state = "HY000".to_owned();
        Error::Server(ServerError { code, message, state })
    }

    #[test]
    fn deadlocks_are_refusals_that_leave_the_session() {
        for code in [1213, 3058, 1205] {
            let error = classify(server_error(code));
            assert!(!error.ends_session(), "{code}");
            let error = error.during("mysql", "asking for", Some(&Key::of("stock")));
            assert_eq!(error.kind(), LockErrorKind::Refused);
            assert!(error.to_string().contains("stock#"), "{error}");
            let source = std::error::Error::source(&error).expect("the error of the driver");
            assert!(source.is::<Error>(), "{source:?}");
        }
    }

    #[test]
    fn a_session_that_was_killed_is_broken() {
        assert!(SESSION_ENDED.iter().all(|code| classify(server_error(*code)).ends_session()));
        assert!(is_unprepared(&classify(server_error(NO_SUCH_TABLE))));
        assert!(
            is_locked(&server_error(LOCK_WAIT_TIMEOUT)) && is_locked(&server_error(LOCK_NOWAIT))
        );
    }
}
