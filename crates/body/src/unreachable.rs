//! Errors that say that no request was sent.

use std::error::Error;
use std::io::{self, ErrorKind};

/// Whether an error says that nothing listens where a request was to be sent, so that it is not the
/// fault of that request.
pub fn is_unreachable(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>();
        if let Some(
            ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown,
        ) = io.map(io::Error::kind)
        {
            return true;
        }
        // The source of one of these is that of the error within it, which would be left out.
        cause = match io.and_then(io::Error::get_ref) {
            Some(within) => Some(within),
            None => error.source(),
        };
    }
    false
}
