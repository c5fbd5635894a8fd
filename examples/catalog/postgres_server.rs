//! A PostgreSQL of this program's own, in a folder that ends with it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sqlx::{Connection, PgConnection};
use tokio::process::Command;

use crate::Fault;
use crate::own_server::{OwnServer, free};

/// A server at a port that was free.
pub(crate) struct PostgresServer {
    pub(crate) url: String,
    _server: OwnServer,
}

impl PostgresServer {
    /// Nothing if its programs are not installed.
    pub(crate) async fn start() -> Result<Option<Self>, Fault> {
        let (Some(initdb), Some(postgres)) = (found("initdb"), found("postgres")) else {
            return Ok(None);
        };
        let folder = tempfile::tempdir()?;
        let data = folder.path().join("data");
        let user = unprivileged(folder.path()).await?;
        let command = |program: PathBuf, args: &str| {
            let args = args.split(' ').map(OsString::from);
            let start: [OsString; 3] = [program.into(), "-D".into(), data.clone().into()];
            Vec::from_iter(user.iter().map(OsString::from).chain(start).chain(args))
        };
        let initdb = command(initdb, "-U postgres -A trust -E UTF8 --no-locale --no-sync");
        let mut made = Command::new(&initdb[0]);
        made.args(&initdb[1..]).current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::null());
        if !made.status().await?.success() {
            return Err("initdb does not make a database".into());
        }
        let address = free()?;
        let postgres = command(postgres, &format!("-p {} {OPTIONS}", address.port()));
        let url = format!("postgres://postgres@{address}/postgres");
        let answers = || async { PgConnection::connect(&url).await.is_ok() };
        // From here on, the server removes it.
        let folder = folder.keep();
        let server = OwnServer::start("postgres", Some(&folder), &postgres, answers).await?;
        Ok(Some(Self { url, _server: server }))
    }
}

/// Where Debian keeps a program, of whatever version, or else in PATH.
fn found(program: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let in_debian = versions.map(|version| version.path().join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = in_debian.chain(env::split_paths(&path));
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// It refuses to run as root, and so becomes the user that its package has made.
async fn unprivileged(folder: &Path) -> Result<Vec<&'static str>, Fault> {
    if fs::metadata(folder)?.uid() != 0 {
        return Ok(Vec::new());
    }
    let given = Command::new("chown").arg("postgres").arg(folder).status().await?;
    given.success().then_some(()).ok_or("there is no user `postgres`")?;
    Ok("setpriv --reuid=postgres --regid=postgres --init-groups".split(' ').collect())
}

/// What it holds need not survive.
const OPTIONS: &str = "-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off \
                       -c synchronous_commit=off -c full_page_writes=off -c log_min_messages=panic";
