//! A real PostgreSQL server of a test's own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::{env, fs, mem};

use super::database::{DatabaseKind, DatabaseServer, program};
use super::guarded::{run, succeeds};
use super::missing::MissingServer;

/// A PostgreSQL server.
pub type PostgresServer = DatabaseServer<Postgres>;

/// PostgreSQL.
#[derive(Debug)]
pub struct Postgres;

impl PostgresServer {
    /// Starts a replica of this server, with the same options.
    pub fn start_replica(&self) -> Self {
        let dir = tempfile::Builder::new().prefix("bw-").tempdir().expect("a directory");
        let mut command = as_unprivileged_user(dir.path());
        command.push(program(found("pg_basebackup")));
        let (url, data) = (self.url(), dir.path().join("data").display().to_string());
        let options = format!("-d {url} -D {data} -R -X stream -c fast --no-sync");
        command.extend(options.split(' ').map(str::to_owned));
        run(&command[0], &command[1..]);
        Self::start_on(dir, self.options.clone())
    }

    /// Makes this replica the primary, at the address of the one that it replicated, which was killed and has that of
    /// the replica from then on.
    pub fn take_over(&mut self, killed: &mut Self) {
        self.kill();
        let signal = self.dir.path().join("data/standby.signal");
        fs::remove_file(signal).expect("a replica");
        mem::swap(&mut self.port, &mut killed.port);
        self.restart();
    }
}

impl DatabaseKind for Postgres {
    const NAME: &'static str = "postgres";
    const PORT_TAKEN: &'static str = "could not bind";
    const HAS_CHILDREN: bool = true;
    const PREPARING: &'static str = "";

    fn found() -> Result<PathBuf, MissingServer> {
        found("postgres")
    }

    fn install(dir: &Path) {
        let mut command = as_unprivileged_user(dir);
        command.push(program(found("initdb")));
        command.push("-D".into());
        command.push(dir.join("data").display().to_string());
        let options =
            "-U postgres -A trust -E UTF8 --no-locale --no-sync --no-instructions --wal-segsize=1";
        command.extend(options.split(' ').map(str::to_owned));
        run(&command[0], &command[1..]);
    }

    fn starting(dir: &Path, port: u16) -> Vec<String> {
        let mut command = as_unprivileged_user(dir);
        command.push(program(found("postgres")));
        command.push("-D".into());
        command.push(dir.join("data").display().to_string());
        command.extend(["-p".into(), port.to_string()]);
        for option in OPTIONS {
            command.extend(["-c".into(), option.to_owned()]);
        }
        command
    }

    fn encrypting(chain: &str, key: &str) -> Vec<String> {
        if rustix::process::geteuid().is_root() {
            run("chown", &["postgres".into(), chain.into(), key.into()]);
        }
        let options =
            [format!("ssl_cert_file={chain}"), format!("ssl_key_file={key}"), "ssl=on".into()];
        options.into_iter().flat_map(|option| ["-c".into(), option]).collect()
    }

    fn is_ready(port: u16) -> bool {
        let ready = format!("-q -h 127.0.0.1 -p {port}");
        let ready: Vec<_> = ready.split(' ').map(str::to_owned).collect();
        succeeds(&program(found("pg_isready")), &ready)
    }

    fn run(port: u16, statements: &str) -> String {
        let arguments = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statements];
        let mut arguments: Vec<String> = arguments.map(str::to_owned).into();
        arguments.push(Self::url_by((Ipv4Addr::LOCALHOST, port).into()));
        run(&program(found("psql")), &arguments)
    }

    fn url_by(address: SocketAddr) -> String {
        format!("postgresql://postgres@{address}/postgres")
    }
}

/// Where Debian keeps a program, of whatever version, or else in PATH.
fn found(name: &str) -> Result<PathBuf, MissingServer> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let in_debian = versions.map(|version| version.path().join("bin").join(name));
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<_> = env::split_paths(&path).map(|dir| dir.join(name)).collect();
    let found: Option<PathBuf> = in_debian.chain(in_path).find(|path| path.is_file());
    found.ok_or(MissingServer { server: "PostgreSQL", package: "postgresql" })
}

/// It refuses to run as root, and so becomes the user that its package has made.
pub(super) fn as_unprivileged_user(dir: &Path) -> Vec<String> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    run("chown", &["postgres".into(), dir.display().to_string()]);
    let command = "setpriv --reuid=postgres --regid=postgres --init-groups env HOME=/tmp";
    command.split(' ').map(str::to_owned).collect()
}

const OPTIONS: [&str; 8] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "shared_buffers=16MB",
    "max_connections=300",
    "autovacuum=off",
];
