//! Locks in a PostgreSQL server.

mod advisory;
mod classification;
mod options;
mod session;

use std::sync::Arc;

pub use self::options::PostgresOptions;

use self::advisory::Advisory;
use super::session::{Sessions, by_sessions};

/// Advisory locks of a PostgreSQL server (14 or later), each by a session of its own.
///
/// A handle: clones share the connections. Every claim has a connection of its own while it waits
/// and holds, because the server grants a lock to its session again. A claim that asks with
/// patience waits in the server, and gets the key as soon as it is free. When its request is
/// dropped, it is cancelled in the server at once.
///
/// Waiters are mostly served in the order of arrival, but no order is promised. When the patience
/// of one request has ended, the waiter loses its place in the server's queue, and asks again.
///
/// # How long it is held
/// By a [session](super::Term::Session), as long as the connection lives. Leases are ignored. The
/// server ends a session from which it receives nothing for [`PostgresOptions::session_timeout`].
/// The keys of a holder that is stopped, or was killed with its machine, stay locked until then;
/// those of a holder whose connection breaks, for a moment.
///
/// This process sends a request three times as often. It tells the holder as soon as the server
/// ends the session (`pg_terminate_backend`, a restart), or when the session may have ended because
/// there was no answer, which is before the server ends it. A process that stood still can see the
/// loss at once ([`LockStatus::is_lost`](super::LockStatus::is_lost)).
///
/// # Fences
/// Numbers of one sequence for all keys and users, `public.bellwether_fences`, so there is nothing to
/// clean. It starts with the server's time in microseconds, so fences grow even if it is lost. They
/// also grow over restarts and crashes. After a failover to a replica that lags, they may not.
///
/// # What a user of the server must be allowed to do
/// `CREATE` in the schema `public` if the sequence is missing. All users of the database share its
/// locks, so its creator grants them `USAGE` of the sequence.
///
/// # Limits
/// - The server's name of a lock has 64 bits, which are hashed from namespace and key. Two keys
///   with the same hash exclude each other. Each still has one holder at most, but a task that
///   locks both blocks itself until its wait limit. With a million keys, the odds of such a pair
///   are 1 to 37 million.
/// - Locks are of one database: all processes must be connected to the same one. They share their
///   numbers with the application's own advisory locks of one `bigint`.
/// - A pooler must give each session a connection of its own. One that shares them, such as
///   PgBouncer in transaction mode, is refused.
/// - It is not [`TakeOver`](super::TakeOver): a key cannot be taken from a holder that hangs.
///   Terminate the holder's backend instead.
/// - Tested with PostgreSQL 15.
#[derive(Clone, Debug)]
pub struct PostgresLock(Arc<Sessions<Advisory>>);

by_sessions!(PostgresLock, PostgresOptions, Advisory);
