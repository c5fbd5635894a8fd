//! Locks in a MariaDB or MySQL server.

mod classification;
mod fence;
mod named_locks;
mod options;
mod row;
mod session;

use std::time::Duration;

use bellwether::{Key, StoreError, StoreErrorKind};

pub use self::options::MySqlOptions;

use self::named_locks::NamedLocks;
use self::row::Rows;
use super::session::Sessions;
use super::{Answer, Attempt, Claim, Fenced, Lock, Released, Renew, Request, Watch};

macro_rules! by_sessions {
    ($lock:ident, $database:ident) => {
        impl $lock {
            /// Connects to a `mysql://` address, with the defaults of [`MySqlOptions`].
            ///
            /// # Errors
            /// If it is no such address, or if the server cannot be reached or refuses.
            pub async fn connect(url: &str) -> Result<Self, StoreError> {
                let options = MySqlOptions::new(url).map_err(|error| {
                    StoreError::new(StoreErrorKind::Misconfigured, error.to_string())
                })?;
                Self::connect_with(options).await
            }

            /// Connects, and makes what tables are missing.
            ///
            /// # Errors
            /// If the server cannot be reached or refuses, or if a table is missing and the user
            /// may not make it: the message has the statement that makes it.
            pub async fn connect_with(options: MySqlOptions) -> Result<Self, StoreError> {
                let lock = Self::connect_lazily(options);
                lock.0.prepare().await?;
                Ok(lock)
            }

            /// A lock that connects when it is first used, for services that start before their
            /// database.
            pub fn connect_lazily(options: MySqlOptions) -> Self {
                let settings = options.settings.clone();
                Self(Sessions::new($database::new(options), settings))
            }
        }

        impl Lock for $lock {
            fn watch(&self, key: &Key) -> Watch {
                self.0.watch(key)
            }

            fn acquire(&self, request: Request) -> Answer<Attempt> {
                self.0.acquire(request)
            }

            fn renew(&self, claim: &Claim, _: Duration) -> Answer<Renew> {
                self.0.renew(claim)
            }

            fn release(&self, claim: Claim) -> Answer<Released> {
                self.0.release(claim)
            }
        }

        impl Fenced for $lock {}
    };
}

/// Named locks (`GET_LOCK`) of a MariaDB or MySQL server, each on a connection kept for it.
///
/// A handle: clones share the connections. Every claim has one to itself while it waits and while
/// it holds, because the server grants a name to the session that has it again. A claim that is
/// asked for with patience waits in the server and gets the key as soon as it is free; one whose
/// question is dropped leaves the server's queue at once.
///
/// # How long it is held
/// By a [session](super::Term::Session), for as long as the connection lives; leases are of no
/// account. A session that was not heard of for [`MySqlOptions::session_timeout`] is ended by the
/// server, so that is how long a holder that was killed with its machine, or stopped, keeps others
/// out; one whose connection breaks keeps them out for a moment. This process asks three times as
/// often, and tells the holder when the session has ended (a `KILL`, a restart), or when for lack of
/// an answer it may have: before the server ends it. A process that stood still for so long knows when
/// it looks ([`LockGuard::is_lost`](super::LockGuard::is_lost)).
///
/// The server tells nothing by itself. So a holder whose session was killed hears of it with the next
/// question, a third of the session timeout later: 2 s by default.
///
/// # Fences
/// Numbers of one counter for all keys, the table `bellwether_fences` of the address's database. It
/// never has a row that stays, so there is nothing to clean. It starts with the server's time in
/// microseconds, so fences grow even if the table is lost. They grow over crashes as far as the
/// server keeps what was committed (`innodb_flush_log_at_trx_commit`), except on MySQL before 8 and
/// MariaDB before 10.2, which start counting again.
///
/// # What a user of the server must be allowed to do
/// `SELECT, INSERT, DELETE ON bellwether_fences`, and `CREATE` if it is not there yet.
///
/// # Limits
/// - Names are of one server: replicas and other nodes of a Galera cluster know nothing of them.
///   All processes must be connected to the same server, and not through a proxy that shares sessions.
/// - It cannot be taken from a holder that is there and does nothing: it is not
///   [`TakeOver`](super::TakeOver). Kill its connection instead.
/// - Connections are not encrypted.
/// - Tested with MariaDB 10.11. Oracle's MySQL 8 knows all the statements, but was not tested; it
///   rounds patience to whole seconds.
#[derive(Clone, Debug)]
pub struct MySqlLock(Sessions<NamedLocks>);

by_sessions!(MySqlLock, NamedLocks);

/// Rows of a table in a MariaDB or MySQL server, each locked by `SELECT ... FOR UPDATE` in a
/// transaction that stays open.
///
/// It is as [`MySqlLock`] in everything that is not said here. Unlike names, rows are locked
/// wherever writes go to one server, and the server's list of transactions shows them. But a
/// holder keeps a transaction open, which keeps the server from purging old versions of rows:
/// for holds of more than a few seconds take [`MySqlLock`].
///
/// A row is found in the table `bellwether_locks`. Patience below one second is spent by asking
/// again every 25 ms, as the server's own is in whole seconds. Waiters are served in no order.
///
/// # Fences
/// Of the same counter. They are counted over one more connection, as a transaction that stays open
/// writes nothing to disk, and a server that crashed would start counting again.
///
/// # What a user of the server must be allowed to do
/// `SELECT, INSERT, DELETE ON bellwether_fences`, `SELECT, INSERT, UPDATE, DELETE ON
/// bellwether_locks`, and `CREATE` if they are not there yet.
///
/// # What it leaves behind
/// A row for each key that was locked in the last ten seconds, and at most 64 more for each process:
/// every 64th release of a process removes up to 256 older rows that are not held. A process that
/// stops leaves its last 64 rows to the next one.
///
/// # Limits
/// It needs MariaDB 10.6 or MySQL 8, for `SKIP LOCKED`. Tested with MariaDB 10.11 only.
#[derive(Clone, Debug)]
pub struct MySqlRowLock(Sessions<Rows>);

by_sessions!(MySqlRowLock, Rows);
