//! What a lock by sessions needs of a database.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use tokio::time::Instant;

use super::{DatabaseAddress, Name, SessionOptions};
use crate::LockError;

/// A session with a server. Dropping it ends it.
pub(crate) trait DatabaseSession: Sized + Send + 'static {
    /// The name of the system, for messages.
    const NAME: &'static str;

    /// The longest time without a request while a name is held: until then, the end of a session is
    /// not noticed, unless the server [reports](Self::ended) it.
    const LONGEST_PAUSE: Duration = Duration::MAX;

    type Address: DatabaseAddress;

    /// Begins a session. The server ends it when it receives nothing for the session timeout of the
    /// options.
    fn open(
        options: &SessionOptions<Self::Address>,
    ) -> impl Future<Output = Result<Self, LockError>> + Send;

    /// Whether an error says that one of our tables is missing.
    fn is_unprepared(error: &LockError) -> bool;

    /// Ends what this session waits for then, over a connection of its own.
    fn interrupt(
        &self,
        options: &SessionOptions<Self::Address>,
    ) -> BoxFuture<'static, Result<(), LockError>>;

    /// Completes when the server reports the end of the session, if it does so unasked.
    fn ended(&self) -> BoxFuture<'static, ()> {
        future::pending().boxed()
    }
}

/// A database whose sessions can hold a name.
///
/// When a future of an operation is dropped before its end, its session has to be dropped as well.
pub(crate) trait Database: Send + Sync + 'static {
    type Session: DatabaseSession;

    fn new(options: &AddressedOptions<Self>) -> Self;

    /// Creates the tables that are missing.
    fn prepare(
        &self,
        session: &mut Self::Session,
    ) -> impl Future<Output = Result<(), LockError>> + Send;

    /// Takes the name if it is free.
    fn take(
        &self,
        session: &mut Self::Session,
        name: &Name,
    ) -> impl Future<Output = Result<Option<TakenName>, LockError>> + Send {
        self.wait(session, name, Duration::ZERO)
    }

    /// Takes the name when it becomes free, within the patience.
    fn wait(
        &self,
        session: &mut Self::Session,
        name: &Name,
        patience: Duration,
    ) -> impl Future<Output = Result<Option<TakenName>, LockError>> + Send;

    /// Whether this session still holds the name that it has taken. The request keeps it alive.
    fn holds(
        &self,
        session: &mut Self::Session,
    ) -> impl Future<Output = Result<bool, LockError>> + Send;

    /// Releases the name and everything else, so that another claim can use the session. Returns
    /// whether it held the name.
    fn free(
        &self,
        session: &mut Self::Session,
        name: &Name,
    ) -> impl Future<Output = Result<bool, LockError>> + Send;
}

/// The options of the sessions of a database.
pub(crate) type AddressedOptions<D> =
    SessionOptions<<<D as Database>::Session as DatabaseSession>::Address>;

/// A name that a session has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenName {
    pub(crate) fence: u64,
    /// When the last request was sent that was answered after the name was held. The session cannot
    /// have ended before that.
    pub(crate) asked: Instant,
}
