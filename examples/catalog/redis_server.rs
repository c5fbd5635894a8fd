//! A Redis of this program's own.

use std::net::SocketAddr;
use std::process::Stdio;

use tokio::net::TcpStream;
use tokio::process::Command;

use crate::Fault;
use crate::own_server::{OwnServer, free};

/// A server at a port that was free.
pub(crate) struct RedisServer {
    address: SocketAddr,
    server: OwnServer,
}

impl RedisServer {
    /// Nothing if the program is not installed.
    pub(crate) async fn start() -> Result<Option<Self>, Fault> {
        let asked = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
        if !asked.await.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        Ok(Some(Self::start_at(free()?).await?))
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) async fn stop(self) -> Result<SocketAddr, Fault> {
        self.server.stop().await?;
        Ok(self.address)
    }

    pub(crate) async fn start_at(address: SocketAddr) -> Result<Self, Fault> {
        let port = address.port().to_string();
        let command = ["redis-server", "--save", "", "--bind", "127.0.0.1", "--port", &port];
        let answers = || async move { TcpStream::connect(address).await.is_ok() };
        let server =
            OwnServer::start("redis-server", None, &command.map(Into::into), answers).await?;
        Ok(Self { address, server })
    }
}
