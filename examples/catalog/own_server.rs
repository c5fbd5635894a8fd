//! Servers of this program's own, which end with it.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::Fault;

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a program until our standard input ends, which it does when this program ends, however that is. Then removes
/// the folder of the program, if it has one.
const GUARDED: &str = r#"
folder=$1
shift
"$@" &
read -r _
kill -INT $!
wait
[ -z "$folder" ] || rm -rf "$folder"
"#;

/// A server. Dropping it ends the server.
pub(crate) struct OwnServer(Child);

impl OwnServer {
    /// Starts a program with a folder, and waits until it answers.
    pub(crate) async fn start<F: Future<Output = bool>>(
        name: &str,
        folder: Option<&Path>,
        command: &[OsString],
        answers: impl Fn() -> F,
    ) -> Result<Self, Fault> {
        let child = Command::new("sh")
            .args(["-c", GUARDED, "sh"])
            .arg(folder.unwrap_or_else(|| Path::new("")))
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // An interrupt at the terminal is for us; it follows.
            .process_group(0)
            .spawn()?;
        let is_up = async {
            while !answers().await {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(PATIENCE, is_up).await.map_err(|_| format!("{name} does not start"))?;
        Ok(Self(child))
    }

    /// Ends it. What it stores is gone.
    pub(crate) async fn stop(mut self) -> Result<(), Fault> {
        drop(self.0.stdin.take());
        self.0.wait().await?;
        Ok(())
    }
}

/// An address with a port that is free.
pub(crate) fn free() -> Result<SocketAddr, Fault> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
