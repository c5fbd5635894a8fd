//! Locks in a PostgreSQL server.

mod advisory;
mod classification;
mod options;
mod session;

use std::time::Duration;

use bellwether::{Key, StoreError, StoreErrorKind};

pub use self::options::PostgresOptions;

use self::advisory::Advisory;
use super::session::Sessions;
use super::{Answer, Attempt, Claim, Fenced, Lock, Released, Renew, Request, Watch};

/// Advisory locks of a PostgreSQL server (14 or later), each by a session of its own.
///
/// A handle: clones share the connections. Every claim has one to itself while it waits and while
/// it holds, because the server grants a lock to the session that has it again. A claim that is
/// asked for with patience waits in the server, and gets the key as soon as it is free; one whose
/// question is dropped is cancelled in the server at once. Waiters are mostly served in the order in
/// which they came, but no order is promised: a waiter whose patience with one question is over loses
/// its place in the server's queue to those behind it, and asks again.
///
/// # How long it is held
/// By a [session](super::Term::Session), for as long as the connection lives; leases are of no
/// account. A session that was not heard of for [`PostgresOptions::session_timeout`] is ended by
/// the server, so that is how long a holder that was killed with its machine, or stopped, keeps
/// others out; one whose connection breaks keeps them out for a moment. This process asks three
/// times as often. It tells the holder as soon as the server ends the session
/// (`pg_terminate_backend`, a restart), and when for lack of an answer it may have ended: before the
/// server ends it. A process that stood still for so long knows when it looks
/// ([`LockGuard::is_lost`](super::LockGuard::is_lost)).
///
/// # Fences
/// Numbers of one sequence for all keys, `bellwether_fences`, so there is nothing to clean. It
/// starts with the server's time in microseconds, so fences grow even if it is lost. They also grow
/// over restarts; over a failover to a replica that lags, they may not.
///
/// # What a user of the server must be allowed to do
/// `USAGE ON SEQUENCE bellwether_fences`, and `CREATE` in the schema if it is not there yet.
///
/// # Limits
/// - The server's name of a lock has 64 bits, which are hashed from namespace and key. Two keys
///   that have the same one exclude each other: each is locked by at most one holder all the same, but
///   a task that locks both blocks itself until its wait limit. With a
///   million keys, the odds that there are two such are 1 to 37 million.
/// - Locks are of one database: all processes must be connected to the same one. The application's own
///   advisory locks of one `bigint` are among them. They do not work through a pooler that shares
///   sessions, such as PgBouncer by transactions.
/// - It cannot be taken from a holder that is there and does nothing: it is not
///   [`TakeOver`](super::TakeOver). Terminate its backend instead.
/// - Connections are not encrypted.
/// - Tested with PostgreSQL 15.
#[derive(Clone, Debug)]
pub struct PostgresLock(Sessions<Advisory>);

impl PostgresLock {
    /// Connects to a `postgresql://` address, with the defaults of [`PostgresOptions`].
    ///
    /// # Errors
    /// If it is no such address, or if the server cannot be reached or refuses.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let options = PostgresOptions::new(url)
            .map_err(|error| StoreError::new(StoreErrorKind::Misconfigured, error.to_string()))?;
        Self::connect_with(options).await
    }

    /// Connects, and makes the sequence if it is missing.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses, or if the sequence is missing and the user may
    /// not make it: the message has the statement that makes it.
    pub async fn connect_with(options: PostgresOptions) -> Result<Self, StoreError> {
        let lock = Self::connect_lazily(options);
        lock.0.prepare().await?;
        Ok(lock)
    }

    /// A lock that connects when it is first used, for services that start before their database.
    pub fn connect_lazily(options: PostgresOptions) -> Self {
        let settings = options.settings.clone();
        Self(Sessions::new(Advisory::new(options), settings))
    }
}

impl Lock for PostgresLock {
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

impl Fenced for PostgresLock {}
