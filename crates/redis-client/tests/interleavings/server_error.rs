use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) enum ServerError {
    Reported(ConnectionLost),
    Refused,
    Unconnected(Arc<Self>),
}

/// The one way in which a request fails.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLost;

impl ServerError {
    pub(crate) fn late(_timeout: Duration) -> Self {
        unreachable!("no deadline passes")
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Reported(ConnectionLost))
    }

    pub(crate) fn is_of_replica(&self) -> bool {
        false
    }

    pub(crate) fn is_about_credentials(&self) -> bool {
        false
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
