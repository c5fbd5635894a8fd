//! Locks in a MariaDB or MySQL server.

mod classification;
mod fence;
mod options;
mod row;
mod session;

use std::sync::Arc;

pub use self::options::MySqlOptions;

use self::row::Rows;
use super::session::{Sessions, by_sessions};

/// Rows of a table in a MariaDB or MySQL server, each locked by `SELECT ... FOR UPDATE` in a
/// transaction that stays open.
///
/// A handle: clones share the connections. Every claim has a connection of its own while it waits
/// and holds. A claim that asks with patience waits in the server. When its request is dropped, the
/// statement is killed at once. The server waits for whole seconds only, so a claim with less
/// patience asks again every 25 ms. Waiters are served in no order.
///
/// The rows are in the table `bellwether_locks` of the database of the address. They are locked
/// wherever writes go to one server, also through a proxy that splits reads, and the server's list
/// of transactions shows them. But a holder keeps a transaction open, which keeps the server from
/// purging old versions of rows: for long holds use another kind of lock.
///
/// # How long it is held
/// By a [session](super::Term::Session), as long as the connection lives. Leases are ignored. The
/// server ends a session from which it receives nothing for [`MySqlOptions::session_timeout`]. The
/// keys of a holder that is stopped, or was killed with its machine, stay locked until then; those
/// of a holder whose connection breaks, for a moment.
///
/// The server reports nothing by itself, so this process sends a ping every 0.25 s for each key that
/// it holds. It tells the holder when the session has ended (a `KILL`, a restart), or may have
/// because there was no answer, which is before the server ends it. A process that stood still can
/// see the loss at once ([`LockStatus::is_lost`](super::LockStatus::is_lost)).
///
/// # Fences
/// Numbers of one counter for all keys, the table `bellwether_fences`. It keeps no rows, so there is
/// nothing to clean. It starts with the server's time in microseconds, so fences grow even if the
/// table is lost. They grow over crashes as far as the server keeps what was committed
/// (`innodb_flush_log_at_trx_commit`). The exceptions are MySQL before 8 and MariaDB before 10.2,
/// which start counting again. One more connection counts them: a transaction that stays open writes
/// nothing to disk.
///
/// # What a user of the server must be allowed to do
/// `SELECT, INSERT, DELETE ON bellwether_fences`, `SELECT, INSERT, UPDATE, DELETE ON
/// bellwether_locks`, and `CREATE` if a table is missing.
///
/// # What it leaves behind
/// A row for each key that was locked in the last ten seconds, and older ones until they are
/// removed: a process removes up to 256 of those that are not held with its first release, and with
/// each 64th one after it. So it removes more than it adds.
///
/// # Limits
/// - It is not [`TakeOver`](super::TakeOver): a key cannot be taken from a holder that hangs. Kill
///   the holder's connection instead.
/// - It needs MariaDB 10.6 or MySQL 8, for `SKIP LOCKED`. Tested with MariaDB 10.11 only.
#[derive(Clone, Debug)]
pub struct MySqlRowLock(Arc<Sessions<Rows>>);

by_sessions!(MySqlRowLock, MySqlOptions, Rows);
