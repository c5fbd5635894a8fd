//! Errors that show that no request was sent.

use std::error::Error;
use std::io::{self, ErrorKind};

/// Whether an error, or one of its causes, says that the server cannot be reached: the connection
/// was refused, or there is no route. Then no request was sent, so no request caused the error.
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
        // `io::Error::source` skips the error that it wraps, so that one is visited here.
        cause = match io.and_then(io::Error::get_ref) {
            Some(within) => Some(within),
            None => error.source(),
        };
    }
    false
}
