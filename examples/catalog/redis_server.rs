//! A Redis of this program's own, which ends with it.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::Fault;

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a program until our standard input ends, which it does when this program ends, however that is.
const GUARDED: &str = r#""$@" >/dev/null & read -r _; kill $!; wait"#;

/// A server at a port that was free.
pub(crate) struct RedisServer {
    address: SocketAddr,
    child: Child,
}

impl RedisServer {
    /// Nothing if the program is not installed.
    pub(crate) async fn start() -> Result<Option<Self>, Fault> {
        let asked = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
        if !asked.await.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        Ok(Some(Self::start_at(free).await?))
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Ends it. What it stores is gone.
    pub(crate) async fn stop(mut self) -> Result<SocketAddr, Fault> {
        drop(self.child.stdin.take());
        self.child.wait().await?;
        Ok(self.address)
    }

    pub(crate) async fn start_at(address: SocketAddr) -> Result<Self, Fault> {
        let child = Command::new("sh")
            .args(["-c", GUARDED, "sh", "redis-server", "--save", "", "--bind", "127.0.0.1"])
            .args(["--port", &address.port().to_string()])
            .stdin(Stdio::piped())
            // An interrupt at the terminal is for us; it follows.
            .process_group(0)
            .spawn()?;
        let is_up = async {
            while TcpStream::connect(address).await.is_err() {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(PATIENCE, is_up).await.map_err(|_| "redis-server does not start")?;
        Ok(Self { address, child })
    }
}
