//! Locks in a MariaDB or MySQL server.

mod classification;
mod fence;
mod named_locks;
mod options;
mod row;
mod session;

use std::sync::Arc;

pub use self::options::MySqlOptions;

use self::named_locks::NamedLocks;
use self::row::Rows;
use super::session::{Sessions, by_sessions};

/// Named locks (`GET_LOCK`) of a MariaDB or MySQL server, each on a connection kept for it.
///
/// A handle: clones share the connections. Every claim has a connection of its own while it waits
/// and holds, because the server grants a name to its session again. A claim that asks with
/// patience waits in the server, and gets the key as soon as it is free. When its request is
/// dropped, it leaves the server's queue at once.
///
/// # How long it is held
/// By a [session](super::Term::Session), as long as the connection lives. Leases are ignored. The
/// server ends a session from which it receives nothing for [`MySqlOptions::session_timeout`]. The
/// keys of a holder that is stopped, or was killed with its machine, stay locked until then; those
/// of a holder whose connection breaks, for a moment.
///
/// This process sends a request three times as often. It tells the holder when the session has
/// ended (a `KILL`, a restart), or may have because there was no answer, which is before the server
/// ends it. A process that stood still can see the loss at once
/// ([`LockStatus::is_lost`](super::LockStatus::is_lost)). The server reports nothing by itself: a
/// holder whose session was killed learns so with the next request, a third of the session timeout
/// later, which is 2 s by default.
///
/// # Fences
/// Numbers of one counter for all keys, the table `bellwether_fences` in the database of the
/// address. It keeps no rows, so there is nothing to clean. It starts with the server's time in
/// microseconds, so fences grow even if the table is lost. They grow over crashes as far as the
/// server keeps what was committed (`innodb_flush_log_at_trx_commit`). The exceptions are MySQL
/// before 8 and MariaDB before 10.2, which start counting again.
///
/// # What a user of the server must be allowed to do
/// `SELECT, INSERT, DELETE ON bellwether_fences`, and `CREATE` if the table is missing.
///
/// # Limits
/// - Names are of one server: replicas and other nodes of a Galera cluster do not have them. All
///   processes must use the same server, and not through a proxy that shares sessions.
/// - It is not [`TakeOver`](super::TakeOver): a key cannot be taken from a holder that hangs. Kill
///   the holder's connection instead.
/// - Connections are not encrypted, and an address that asks for TLS is refused.
/// - Tested with MariaDB 10.11. Oracle's MySQL 8 supports all the statements, but was not tested;
///   it rounds patience to whole seconds.
#[derive(Clone, Debug)]
pub struct MySqlLock(Arc<Sessions<NamedLocks>>);

by_sessions!(MySqlLock, MySqlOptions, NamedLocks);

/// Rows of a table in a MariaDB or MySQL server, each locked by `SELECT ... FOR UPDATE` in a
/// transaction that stays open.
///
/// It works like [`MySqlLock`], with the following differences. Rows, unlike names, are locked
/// wherever writes go to one server, and the server's list of transactions shows them. But a holder
/// keeps a transaction open, which keeps the server from purging old versions of rows. For holds of
/// more than a few seconds use [`MySqlLock`].
///
/// The rows are in the table `bellwether_locks`. The server waits for whole seconds only, so a
/// claim with less patience asks again every 25 ms. Waiters are served in no order.
///
/// # Fences
/// Numbers of the same counter. One more connection counts them: a transaction that stays open
/// writes nothing to disk, so a server that crashes would start counting again.
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
/// It needs MariaDB 10.6 or MySQL 8, for `SKIP LOCKED`. Tested with MariaDB 10.11 only.
#[derive(Clone, Debug)]
pub struct MySqlRowLock(Arc<Sessions<Rows>>);

by_sessions!(MySqlRowLock, MySqlOptions, Rows);
