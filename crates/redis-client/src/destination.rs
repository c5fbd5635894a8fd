//! The destination of connections: a fixed address, or the primary that sentinels name.

use std::sync::Arc;

#[cfg(feature = "sentinel")]
use redis::Value;
use redis::aio::MultiplexedConnection;

use super::address::{ServerAddress, Servers};
use super::connect_error::ConnectError;
use super::failovers::Failovers;
use super::options::RedisClientOptions;
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;

/// Where connections lead.
#[derive(Clone)]
pub(super) enum Destination {
    Server(ServerAddress),
    #[cfg(feature = "sentinel")]
    Sentinel(Arc<Sentinels>),
}

impl Destination {
    /// The destination of the options. When sentinels name another primary, that is a failover.
    pub(super) fn new(options: &RedisClientOptions, failovers: &Arc<Failovers>) -> Self {
        match options.servers() {
            #[cfg(feature = "sentinel")]
            Servers::Sentinel { sentinels, service } => {
                let sentinels = Sentinels::new(sentinels, service, options, failovers);
                Self::Sentinel(Arc::new(sentinels))
            }
            // The nodes of a cluster have destinations of their own.
            servers => Self::Server(servers.first()),
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

    /// Makes sure that a server that sentinels have named is a primary. In a failover they may name
    /// one that is not, or not any more.
    pub(super) async fn verify(
        &self,
        socket: &mut MultiplexedConnection,
        address: &ServerAddress,
    ) -> Result<(), ConnectError> {
        #[cfg(feature = "sentinel")]
        if let Self::Sentinel(_) = self {
            return is_primary(socket, address).await;
        }
        Ok(())
    }
}

#[cfg(feature = "sentinel")]
async fn is_primary(
    socket: &mut MultiplexedConnection,
    address: &ServerAddress,
) -> Result<(), ConnectError> {
    let role: Value = redis::cmd("ROLE").query_async(socket).await?;
    let is_primary = matches!(role, Value::Array(fields) if matches!(
        fields.first(), Some(Value::BulkString(role)) if role == b"master"
    ));
    if is_primary {
        return Ok(());
    }
    let message = format!("the sentinels name {address}, which is not a primary now");
    Err(ConnectError::unavailable(message))
}
