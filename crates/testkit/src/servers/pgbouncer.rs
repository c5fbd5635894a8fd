//! A real PgBouncer of a test's own.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::{env, fs};

use tempfile::TempDir;

use super::database::program;
use super::guarded::{Guarded, PORTS_TRIED, directory, free_port, log, wait_until};
use super::missing::MissingServer;
use super::postgres::as_unprivileged_user;

/// A PgBouncer before a PostgreSQL server.
#[derive(Debug)]
pub struct PgBouncer {
    _process: Guarded,
    port: u16,
    // After the process, which writes in it.
    _dir: TempDir,
}

impl PgBouncer {
    /// Starts one that pools like this: `session`, `transaction` or `statement`.
    pub fn start(server: SocketAddr, pool_mode: &str) -> Self {
        let dir = directory();
        let users = dir.path().join("users");
        fs::write(&users, "\"postgres\" \"\"\n").expect("a file of users");
        for _ in 0..PORTS_TRIED {
            let port = free_port();
            let config = dir.path().join("pgbouncer.ini");
            let text = format!(
                "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr=127.0.0.1\n\
                 listen_port={port}\nunix_socket_dir=\nauth_type=trust\nauth_file={}\n\
                 pool_mode={pool_mode}\n",
                server.port(),
                users.display(),
            );
            fs::write(&config, text).expect("its configuration");
            let mut command = as_unprivileged_user(dir.path());
            command.extend([program(found()), config.display().to_string()]);
            let mut process = Guarded::start(dir.path(), &command);
            let accepts = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
            wait_until("it takes connections", || process.has_ended() || accepts());
            if !process.has_ended() {
                return Self { _process: process, port, _dir: dir };
            }
        }
        panic!("it does not start: {}", log(dir.path()));
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

fn found() -> Result<PathBuf, MissingServer> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<_> = env::split_paths(&path).collect();
    // It is not in every user's PATH.
    places.push("/usr/sbin".into());
    let found = places.iter().map(|place| place.join("pgbouncer")).find(|path| path.is_file());
    found.ok_or(MissingServer { server: "PgBouncer", package: "pgbouncer" })
}
