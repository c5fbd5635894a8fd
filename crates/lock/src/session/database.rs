//! What a database is to a lock by sessions.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{Name, SessionError};

/// A database whose sessions can hold a name.
///
/// Of the futures, only that of [`interrupt`](Database::interrupt) may be dropped before its end
/// without the session being dropped after it.
pub(crate) trait Database: fmt::Debug + Send + Sync + 'static {
    /// For messages.
    const NAME: &'static str;

    /// One session. It is ended by being dropped.
    type Session: Send + 'static;

    /// What a wait is interrupted by.
    type Interrupt: Send + 'static;

    /// Begins a session, which the server ends when it has not heard of it for as long as the
    /// settings say.
    fn connect(&self) -> impl Future<Output = Result<Self::Session, SessionError>> + Send;

    /// Makes the tables that are missing.
    fn prepare(
        &self,
        session: &mut Self::Session,
    ) -> impl Future<Output = Result<(), SessionError>> + Send;

    /// Takes the name if it is free, or gets free within the patience.
    fn take(
        &self,
        session: &mut Self::Session,
        name: &Name,
        patience: Duration,
    ) -> impl Future<Output = Result<Option<TakenName>, SessionError>> + Send;

    /// Whether this session holds the name.
    fn holds(
        &self,
        session: &mut Self::Session,
        name: &Name,
    ) -> impl Future<Output = Result<bool, SessionError>> + Send;

    /// Gives the name up, and all else, so that the session is as good as new. Says whether it held
    /// the name.
    fn free(
        &self,
        session: &mut Self::Session,
        name: &Name,
    ) -> impl Future<Output = Result<bool, SessionError>> + Send;

    /// Makes itself heard.
    fn ping(
        &self,
        session: &mut Self::Session,
    ) -> impl Future<Output = Result<(), SessionError>> + Send;

    /// For [`interrupt`](Database::interrupt).
    fn interrupt_of(&self, session: &Self::Session) -> Self::Interrupt;

    /// Ends what the session waits for, over a connection of its own.
    fn interrupt(&self, of: Self::Interrupt) -> impl Future<Output = ()> + Send;

    /// Comes when the session is known to have ended, if that is ever known by itself.
    fn ended(session: &Self::Session) -> BoxFuture<'static, ()>;
}

/// A name that a session has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenName {
    pub(crate) fence: u64,
    /// When the last question was sent that was answered after the name was held: the session
    /// cannot have ended before that.
    pub(crate) asked: Instant,
}
