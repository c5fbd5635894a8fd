//! The destination of connections: a fixed address, or the primary that sentinels name.

#[cfg(feature = "sentinel")]
use std::sync::Arc;

use super::address::ServerAddress;
use super::connect_error::ConnectError;
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;

/// Where connections lead.
pub(super) enum Destination {
    Server(ServerAddress),
    #[cfg(feature = "sentinel")]
    Sentinel(Arc<Sentinels>),
}

impl Destination {
    /// The address, if it is always the same.
    pub(super) fn fixed(&self) -> Option<ServerAddress> {
        match self {
            Self::Server(address) => Some(address.clone()),
            #[cfg(feature = "sentinel")]
            Self::Sentinel(_) => None,
        }
    }

    /// The address of the server to connect to now.
    pub(super) async fn address(&self) -> Result<ServerAddress, ConnectError> {
        match self {
            Self::Server(address) => Ok(address.clone()),
            #[cfg(feature = "sentinel")]
            Self::Sentinel(sentinels) => sentinels.primary().await,
        }
    }
}
