//! What the errors of a server mean.

use bellwether::StoreErrorKind;
use mysql_async::Error;

use crate::session::SessionError;

/// What an error means. Nothing of the address is in any.
pub(super) fn meaning(error: Error) -> SessionError {
    match error {
        Error::Server(error) => {
            let said = format!("error {}: {}", error.code, error.message);
            match error.code {
                NO_SUCH_TABLE => SessionError::unprepared(said),
                code if HAVE_ENDED.contains(&code) => {
                    SessionError::broken(StoreErrorKind::Unreachable, said)
                }
                code if ARE_OF_SETTINGS.contains(&code) => {
                    SessionError::refused(StoreErrorKind::Misconfigured, said)
                }
                code if PASS.contains(&code) => {
                    SessionError::refused(StoreErrorKind::NotReady, said)
                }
                _ => SessionError::refused(StoreErrorKind::Refused, said),
            }
        }
        Error::Io(error) => SessionError::broken(StoreErrorKind::Unreachable, error.to_string()),
        // It may show bytes that the server sent.
        Error::Driver(mysql_async::DriverError::ConnectionClosed) => {
            SessionError::broken(StoreErrorKind::Unreachable, "the connection is closed")
        }
        Error::Driver(_) | Error::Other(_) | Error::Url(_) => malformed(),
    }
}

pub(super) fn malformed() -> SessionError {
    SessionError::broken(StoreErrorKind::Malformed, "the answer makes no sense")
}

/// Whether another claim has the row: MariaDB says that the wait was too long even of one that was
/// not to be waited for.
pub(super) fn is_locked(error: &Error) -> bool {
    matches!(error, Error::Server(error) if [LOCK_WAIT_TIMEOUT, LOCK_NOWAIT].contains(&error.code))
}

pub(super) fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Server(error) if ARE_OF_SETTINGS.contains(&error.code))
}

const NO_SUCH_TABLE: u16 = 1146;
const LOCK_WAIT_TIMEOUT: u16 = 1205;
/// Of MySQL 8.
const LOCK_NOWAIT: u16 = 3572;

/// The server goes down, the connection was killed, it was silent for too long (MySQL 8).
const HAVE_ENDED: [u16; 4] = [1053, 1927, 3169, 4031];

/// No right to the database, a wrong password, no such database, no right to the table, no right to
/// the statement, a user that must connect another way.
const ARE_OF_SETTINGS: [u16; 7] = [1044, 1045, 1049, 1142, 1143, 1227, 1698];

/// Too many connections, out of memory or of threads, too many connections of the user, read only
/// for now.
const PASS: [u16; 6] = [1040, 1041, 1135, 1203, 1226, 1290];

#[cfg(test)]
mod tests {
    use mysql_async::ServerError;

    use super::*;
    use bellwether::Key;

    fn said(code: u16) -> Error {
        let (message, state) = ("no".to_owned(), "HY000".to_owned());
        Error::Server(ServerError { code, message, state })
    }

    #[test]
    fn deadlocks_are_refusals_that_leave_the_session() {
        for code in [1213, 3058, 1205] {
            let trouble = meaning(said(code));
            assert!(!trouble.is_broken(), "{code}");
            let error = trouble.during("mysql", "asking for", &Key::of("stock"));
            assert_eq!(error.kind(), StoreErrorKind::Refused);
            assert!(error.to_string().contains("stock#"), "{error}");
        }
    }

    #[test]
    fn a_session_that_was_killed_is_broken() {
        assert!(HAVE_ENDED.iter().all(|code| meaning(said(*code)).is_broken()));
        assert!(meaning(said(NO_SUCH_TABLE)).is_unprepared());
        assert!(is_locked(&said(LOCK_WAIT_TIMEOUT)) && is_locked(&said(LOCK_NOWAIT)));
    }
}
