//! Lanes: pooled links, asked within a time.

use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use bb8_redis::bb8::{self, Pool, RunError};
use redis::{Cmd, ErrorKind, RedisError, Value};
use tokio::time::timeout;

use super::link::{Link, Links};
use super::script::Source;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;

/// A link to a server, replaced when it breaks. No question has it for itself: each is sent over a
/// clone.
#[derive(Debug)]
pub(super) struct Lane {
    /// Makes the link, one at a time however many ask for it.
    pool: Pool<Links>,
    /// A clone of the pool's link, since a checkout costs more than all else that a question does
    /// here. Held to clone it, never across an `.await`.
    link: RwLock<Option<Link>>,
    timeout: Duration,
}

/// What a server is asked.
#[derive(Debug)]
pub(super) enum Question<'a> {
    Command(Cmd),
    Script { source: &'a Source, keys: Vec<Vec<u8>>, args: Vec<Vec<u8>> },
}

/// What can come of a question instead of a reply.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// The reply is not one that the question can have.
    Malformed,
    /// There was none in time.
    TimedOut(Duration),
    /// The client or the server reports it.
    Reported(RedisError),
}

impl Lane {
    pub(super) fn new(links: Links) -> Self {
        let timeout = links.timeout;
        // Checking out costs no command: a link knows itself whether it is broken.
        let pool = Pool::builder()
            .max_size(1)
            .test_on_check_out(true)
            .connection_timeout(timeout)
            .max_lifetime(None)
            .idle_timeout(None)
            .error_sink(Box::new(Log))
            .build_unchecked(links);
        Self { pool, link: RwLock::new(None), timeout }
    }

    /// Asks, connecting first if need be, all within the timeout.
    ///
    /// A question that is lost with its connection is asked once more over another one. It may have
    /// been executed then, and every operation bears that: what is granted again is granted to the
    /// same claim, and a commit that is refused for its own entry is looked for and found.
    ///
    /// # Cancel safety
    /// Dropping it loses the reply; the question may have been sent.
    pub(super) async fn ask(&self, question: &Question<'_>) -> Result<Value, Trouble> {
        let mut used = None;
        match timeout(self.timeout, self.reply(question, &mut used)).await {
            Ok(reply) => reply,
            Err(_) => {
                // A reply that stopped half way would hold up everybody who asks over this link.
                used.inspect(Link::give_up);
                Err(Trouble::TimedOut(self.timeout))
            }
        }
    }

    async fn reply(
        &self,
        question: &Question<'_>,
        used: &mut Option<Link>,
    ) -> Result<Value, Trouble> {
        match self.once(question, used).await {
            Err(Trouble::Reported(error)) if is_lost(&error) => {
                tracing::debug!(%error, "asking again over another connection");
                self.once(question, used).await
            }
            reply => reply,
        }
    }

    async fn once(
        &self,
        question: &Question<'_>,
        used: &mut Option<Link>,
    ) -> Result<Value, Trouble> {
        let link = used.insert(self.link().await?);
        let reply = question.put(link).await;
        if reply.as_ref().is_err_and(is_lost) {
            link.give_up();
        }
        reply.map_err(Trouble::Reported)
    }

    /// The link, or another one if that has broken.
    async fn link(&self) -> Result<Link, Trouble> {
        let link = self.link.read().unwrap_or_else(PoisonError::into_inner).clone();
        match link.filter(|link| !link.is_broken()) {
            Some(link) => Ok(link),
            None => self.connect().await,
        }
    }

    async fn connect(&self) -> Result<Link, Trouble> {
        // The guard goes back at once: others send over the same link meanwhile.
        let link = match self.pool.get().await {
            Ok(guard) => Link::clone(&guard),
            Err(RunError::TimedOut) => return Err(Trouble::TimedOut(self.timeout)),
            Err(RunError::User(error)) => return Err(Trouble::Reported(error)),
        };
        let clone = Some(link.clone());
        *self.link.write().unwrap_or_else(PoisonError::into_inner) = clone;
        Ok(link)
    }
}

/// Whether nothing more can come over the connection that an error is from.
fn is_lost(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_io_error() || error.is_connection_dropped()
}

impl Question<'_> {
    async fn put(&self, link: &mut Link) -> Result<Value, RedisError> {
        match self {
            Self::Command(command) => command.query_async(&mut link.connection).await,
            Self::Script { source, keys, args } => {
                source.run(&mut link.connection, keys, args).await
            }
        }
    }
}

impl Trouble {
    /// The error to be shown, with what was being done to which key.
    pub(super) fn during(&self, what: &str, key: Option<&Key>) -> StoreError {
        let of = key.map(|key| format!(" of `{key}`")).unwrap_or_default();
        StoreError::new(self.kind(), format!("redis, {what}{of}: {self}"))
    }

    fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Malformed => StoreErrorKind::Malformed,
            Self::TimedOut(_) => StoreErrorKind::TimedOut,
            Self::Reported(error) => match error.kind() {
                ErrorKind::Server(_) | ErrorKind::Extension => StoreErrorKind::Refused,
                ErrorKind::AuthenticationFailed => StoreErrorKind::Refused,
                ErrorKind::Parse | ErrorKind::UnexpectedReturnType => StoreErrorKind::Malformed,
                ErrorKind::InvalidClientConfig => StoreErrorKind::Misconfigured,
                _ if error.is_timeout() => StoreErrorKind::TimedOut,
                _ => StoreErrorKind::Unreachable,
            },
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("the reply makes no sense"),
            Self::TimedOut(timeout) => write!(f, "no answer within {timeout:?}"),
            Self::Reported(error) => error.fmt(f),
        }
    }
}

/// Where the pool's own trouble goes: why it cannot connect, above all.
#[derive(Clone, Copy, Debug)]
struct Log;

impl bb8::ErrorSink<RedisError> for Log {
    fn sink(&self, error: RedisError) {
        tracing::debug!(%error, "a connection to redis could not be made or has broken");
    }

    fn boxed_clone(&self) -> Box<dyn bb8::ErrorSink<RedisError>> {
        Box::new(*self)
    }
}
