//! A Prometheus for one test, and its tool `promtool`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::guarded::{Guarded, directory, in_path, log, wait_until};

/// A running Prometheus, which collects metrics every second.
#[derive(Debug)]
pub struct PrometheusServer {
    _process: Guarded,
    url: String,
    // After the process, which writes in it.
    _dir: TempDir,
}

impl PrometheusServer {
    /// Starts a server that collects from these targets, each a host and a port, and evaluates
    /// these rules.
    pub fn start(targets: &[&str], rules: &str) -> Self {
        assert!(in_path("prometheus").is_some(), "{MISSING}");
        let dir = directory();
        let targets: Vec<_> = targets.iter().map(|target| format!("'{target}'")).collect();
        let settings = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [rules.yml]\n\
             scrape_configs:\n- job_name: test\n  static_configs: [{{ targets: [{}] }}]\n",
            targets.join(", ")
        );
        fs::write(dir.path().join("prometheus.yml"), settings).expect("a place for its settings");
        fs::write(dir.path().join("rules.yml"), rules).expect("a place for its rules");
        let mut process = Guarded::start(dir.path(), &COMMAND.map(str::to_owned));
        wait_until("Prometheus is ready", || process.has_ended() || is_ready(dir.path()));
        let url = address(dir.path()).map(|address| format!("http://{address}"));
        let url = url.unwrap_or_else(|| panic!("no Prometheus: {}", log(dir.path())));
        Self { _process: process, url, _dir: dir }
    }

    /// Where its API is.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Runs `promtool` with this input. Panics with what it says if it finds fault.
pub fn promtool(arguments: &[&str], folder: &Path, input: &str) {
    let (is_content, said) = promtool_says(arguments, folder, input);
    assert!(is_content, "promtool {arguments:?}: {said}");
}

/// Runs `promtool` with this input. Whether it finds no fault, and what it says.
pub fn promtool_says(arguments: &[&str], folder: &Path, input: &str) -> (bool, String) {
    assert!(in_path("promtool").is_some(), "{MISSING}");
    let mut child = Command::new("promtool")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let written = child.stdin.take().expect("stdin is piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("promtool ends");
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    written.expect("promtool reads its input");
    (output.status.success(), said.concat())
}

const MISSING: &str = "these tests need a Prometheus with promtool and found none: run `scripts/test`, \
                       which installs one, or `apt-get install prometheus`";

const COMMAND: [&str; 4] = [
    "prometheus",
    "--config.file=prometheus.yml",
    "--storage.tsdb.path=data",
    // It says in its log which port that is.
    "--web.listen-address=127.0.0.1:0",
];

fn is_ready(dir: &Path) -> bool {
    log(dir).contains("Server is ready to receive web requests")
}

fn address(dir: &Path) -> Option<String> {
    let log = log(dir);
    let listens = log.lines().find(|line| line.contains("msg=\"Listening on\""))?;
    let (_, address) = listens.split_once(" address=")?;
    is_ready(dir).then(|| address.to_owned())
}
