//! A table of loads in a real database: each load of each process commits a row.
//!
//! What processes count can be compared with it, because the database counts for itself, and keeps
//! the rows of processes that were killed.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;

/// How long a process may wait for the others that write. Nothing that works comes near it.
const PATIENCE: Duration = Duration::from_secs(120);

/// The table, in a directory of its own.
#[derive(Debug)]
pub struct LoadLedger {
    path: PathBuf,
    /// Removed on drop.
    _dir: TempDir,
}

impl LoadLedger {
    /// An empty table.
    pub fn create() -> Self {
        let dir = tempfile::tempdir().expect("a place for the database");
        let path = dir.path().join("loads.sqlite");
        let table = "PRAGMA journal_mode = WAL; CREATE TABLE loads (process INTEGER, key INTEGER);";
        connect(&path).execute_batch(table).expect("a table");
        Self { path, _dir: dir }
    }

    /// The file of the database, for a [`LedgerWriter`] in any process.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many loads a process has committed.
    pub fn rows_of(&self, process: u64) -> u64 {
        let query = "SELECT count(*) FROM loads WHERE process = ?1";
        let rows = connect(&self.path).query_row(query, [process], |row| row.get(0));
        rows.expect("the table")
    }

    /// How many loads all processes have committed.
    pub fn rows(&self) -> u64 {
        let rows =
            connect(&self.path).query_row("SELECT count(*) FROM loads", [], |row| row.get(0));
        rows.expect("the table")
    }
}

/// A process that writes into a [`LoadLedger`].
#[derive(Debug)]
pub struct LedgerWriter {
    process: u64,
    /// Held for one insertion.
    connection: Mutex<Connection>,
}

impl LedgerWriter {
    /// Opens the file of a ledger for the process of this number.
    pub fn open(path: &Path, process: u64) -> Self {
        Self { process, connection: Mutex::new(connect(path)) }
    }

    /// Commits the row of a load. It blocks its thread, and a killed process has either committed
    /// the row or not.
    pub fn commit(&self, key: u64) {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let row = "INSERT INTO loads (process, key) VALUES (?1, ?2)";
        connection.execute(row, [self.process, key]).expect("the database takes a row");
    }
}

fn connect(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("a database");
    connection.busy_timeout(PATIENCE).expect("a timeout");
    // The machine goes on if a process is killed.
    connection.pragma_update(None, "synchronous", "OFF").expect("a setting");
    connection
}
