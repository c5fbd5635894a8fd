//! A Prometheus beside this program: it collects `/metrics` and checks the alert rules of the folder
//! `observability`.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use crate::Fault;

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

const RULES: &str = include_str!("../../observability/rules.yml");

/// Becomes Prometheus, after leaving a guard behind that reads our standard input. It reads its end
/// when this program ends, however it ends, and then it ends Prometheus and removes its folder.
const GUARDED: &str = r#"
dir=$1
shift
exec 3<&0
{ trap '' HUP INT QUIT TERM; read -r _ <&3; kill -9 $$; rm -rf "$dir"; } >/dev/null 2>&1 &
exec "$@" </dev/null 3<&-
"#;

/// A Prometheus that runs until this is dropped.
pub(crate) struct Observer {
    address: String,
    _child: Child,
    /// Its data.
    _dir: TempDir,
}

impl Observer {
    /// Starts a Prometheus that listens at `address`, for a server of metrics.
    pub(crate) async fn start(address: &str, target: SocketAddr) -> Result<Self, Fault> {
        let dir = tempfile::Builder::new().prefix("catalog-prometheus-").tempdir()?;
        tokio::fs::write(dir.path().join("rules.yml"), RULES).await?;
        tokio::fs::write(dir.path().join("prometheus.yml"), settings(target)).await?;
        if !is_installed().await {
            return Err("there is no program `prometheus`; try: apt-get install prometheus".into());
        }
        let mut child = Command::new("sh")
            .args(["-c", GUARDED, "sh"])
            .arg(dir.path())
            .args(["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address={address}"))
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // An interrupt at the terminal is for us; the guard follows.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let log = child.stderr.take().ok_or("it has no log")?;
        let mut log = BufReader::new(log).lines();
        let ready = timeout(PATIENCE, until_ready(&mut log)).await;
        let address = ready.map_err(|_| "it does not start")??;
        // Reads on, or it could not write any more.
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        Ok(Self { address, _child: child, _dir: dir })
    }

    /// Where its page is.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

/// Reads its log until it serves. Returns where it listens, or why it does not.
async fn until_ready(log: &mut Lines<BufReader<ChildStderr>>) -> Result<String, Fault> {
    let mut address = None;
    let mut last = String::new();
    while let Some(line) = log.next_line().await? {
        if line.contains("msg=\"Listening on\"") {
            address = line.split_once(" address=").map(|(_, address)| address.to_owned());
        }
        if line.contains("ready to receive web requests") {
            return address.ok_or_else(|| "it does not say where it listens".into());
        }
        if line.contains("level=error") || last.is_empty() {
            last = line;
        }
    }
    Err(format!("it has ended: {last}").into())
}

async fn is_installed() -> bool {
    let mut asked = Command::new("prometheus");
    let asked = asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().await.is_ok_and(|status| status.success())
}

/// Often enough for a person that watches.
fn settings(mut target: SocketAddr) -> String {
    if target.ip().is_unspecified() {
        target.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    format!(
        "global: {{ scrape_interval: 2s, evaluation_interval: 2s }}\n\
         rule_files: [rules.yml]\n\
         scrape_configs:\n- job_name: catalog\n  static_configs: [{{ targets: ['{target}'] }}]\n"
    )
}
