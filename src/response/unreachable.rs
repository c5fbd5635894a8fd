//! Errors that say that no request was sent.

use std::error::Error;
use std::io::{self, ErrorKind};

/// Whether an error says that nothing listens where a request was to be sent, so that it is not the
/// fault of that request.
pub(crate) fn is_unreachable(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if let Some(
            ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown,
        ) = kind
        {
            return true;
        }
        cause = error.source();
    }
    false
}
