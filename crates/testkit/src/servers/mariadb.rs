//! A real MariaDB server of a test's own.

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::database::{DatabaseKind, DatabaseServer, program};
use super::guarded::{run, succeeds};
use super::missing::MissingServer;

/// A MariaDB server with a database `test`.
pub type MariaDbServer = DatabaseServer<MariaDb>;

/// MariaDB.
#[derive(Debug)]
pub struct MariaDb;

impl DatabaseKind for MariaDb {
    const NAME: &'static str = "mariadb";
    const PORT_TAKEN: &'static str = "port";
    const HAS_CHILDREN: bool = false;
    const PREPARING: &'static str = "CREATE DATABASE test";

    fn found() -> Result<PathBuf, MissingServer> {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut places: Vec<_> = env::split_paths(&path).collect();
        // It is not in every user's PATH.
        places.push("/usr/sbin".into());
        let found = places.iter().map(|place| place.join("mariadbd")).find(|path| path.is_file());
        found.ok_or(MissingServer { server: "MariaDB", package: "mariadb-server" })
    }

    fn install(dir: &Path) {
        let data = format!("--datadir={}", dir.join("data").display());
        let mut arguments = vec!["--no-defaults".into(), data, "--skip-test-db".into()];
        arguments.push("--innodb-log-file-size=4M".into());
        // Those of others have the same names.
        arguments.push(format!("--tmpdir={}", dir.display()));
        arguments.push("--auth-root-authentication-method=normal".into());
        arguments.extend(as_root());
        run("mariadb-install-db", &arguments);
    }

    fn starting(dir: &Path, port: u16) -> Vec<String> {
        let path = |name: &str| dir.join(name).display().to_string();
        let mut command: Vec<String> = vec![
            program(Self::found()),
            "--no-defaults".into(),
            format!("--datadir={}", path("data")),
            format!("--tmpdir={}", dir.display()),
            format!("--port={port}"),
            format!("--socket={}", path("s")),
            format!("--pid-file={}", path("pid")),
        ];
        command.extend(OPTIONS.map(str::to_owned));
        command.extend(as_root());
        command
    }

    fn encrypting(chain: &str, key: &str) -> Vec<String> {
        vec![format!("--ssl-cert={chain}"), format!("--ssl-key={key}")]
    }

    fn is_ready(port: u16) -> bool {
        succeeds("mariadb-admin", &client(port, &["ping"]))
    }

    fn run(port: u16, statements: &str) -> String {
        run("mariadb", &client(port, &["-N", "-e", statements]))
    }

    fn url_by(address: SocketAddr) -> String {
        format!("mysql://root@{address}/test")
    }
}

fn client(port: u16, more: &[&str]) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["--no-defaults", "-h127.0.0.1", "-uroot"].map(str::to_owned).into();
    arguments.push(format!("-P{port}"));
    arguments.extend(more.iter().map(ToString::to_string));
    arguments
}

/// It refuses to run as root without this option.
fn as_root() -> Option<String> {
    rustix::process::geteuid().is_root().then(|| "--user=root".to_owned())
}

const OPTIONS: [&str; 9] = [
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=4M",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-flush-method=nosync",
    "--skip-log-bin",
    "--performance-schema=OFF",
    "--max-connections=300",
];
