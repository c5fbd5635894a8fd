//! Errors of requests to ZooKeeper, and their kinds.

use std::time::Duration;

use bellwether::Key;
use zookeeper_client::Error;

use crate::{LockError, LockErrorKind};

/// An error of a request to ZooKeeper.
#[derive(Clone, Debug)]
pub(super) enum ZooKeeperError {
    /// The session has ended, or may have.
    Ended,
    /// The connection broke before the answer, so the server may have done what was asked.
    Lost(Error),
    /// The claim is being released.
    Released,
    /// The server did not answer in time.
    TimedOut(Duration),
    /// The server or the client refuses the request.
    Reported(Error),
    /// No session could be established.
    Unconnected(LockError),
}

impl ZooKeeperError {
    /// The public error, which says what was done with which key.
    pub(super) fn during(self, what: &str, key: Option<&Key>) -> LockError {
        let (kind, why) = match &self {
            Self::Unconnected(error) => return error.clone(),
            Self::Ended => (LockErrorKind::Unreachable, "the session has ended".to_owned()),
            Self::Released => (LockErrorKind::NotReady, "the claim is being released".to_owned()),
            Self::TimedOut(limit) => {
                (LockErrorKind::NoReply, format!("no answer within {limit:?}"))
            }
            Self::Lost(error) => (LockErrorKind::Unreachable, error.to_string()),
            Self::Reported(error) => (kind_of(error), format!("{error}{}", advice(error))),
        };
        let error = LockError::new(kind, why).during("zookeeper", what, key);
        match self {
            Self::Lost(source) | Self::Reported(source) => error.with_source(source),
            _ => error,
        }
    }
}

fn kind_of(error: &Error) -> LockErrorKind {
    match error {
        Error::BadArguments(_) | Error::AuthFailed | Error::InvalidAcl | Error::Unimplemented => {
            LockErrorKind::Misconfigured
        }
        Error::NoAuth | Error::QuotaExceeded | Error::MarshallingError => LockErrorKind::Refused,
        Error::Throttled | Error::NotReadOnly => LockErrorKind::NotReady,
        Error::Timeout | Error::NoHosts => LockErrorKind::Unreachable,
        _ => LockErrorKind::Malformed,
    }
}

impl From<Error> for ZooKeeperError {
    fn from(error: Error) -> Self {
        match error {
            Error::SessionExpired | Error::SessionMoved | Error::ClientClosed => Self::Ended,
            // A connection that breaks fails all requests on it with its error.
            Error::ConnectionLoss | Error::Custom(_) => Self::Lost(error),
            _ => Self::Reported(error),
        }
    }
}

/// What an operator can do about an error.
fn advice(error: &Error) -> &'static str {
    match error {
        Error::NoAuth => ": its nodes need other credentials; see `ZooKeeperOptions::auth`",
        Error::InvalidAcl => ": private nodes need `ZooKeeperOptions::auth`",
        Error::Unimplemented => ": it must be ZooKeeper 3.5.3 or later",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_was_done_why_it_failed_and_what_to_do() {
        let error = ZooKeeperError::from(Error::NoAuth).during("acquiring", Some(&Key::of("item")));
        assert_eq!(error.kind(), LockErrorKind::Refused);
        let source = std::error::Error::source(&error).expect("the error of the client");
        assert!(source.is::<Error>(), "{source:?}");
        let said = error.to_string();
        assert!(said.contains("acquiring `item#") && said.contains("Options::auth"), "{said}");
    }
}
