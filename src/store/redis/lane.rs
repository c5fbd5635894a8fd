//! Lanes: pooled links, asked within a time.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bb8_redis::bb8::{Pool, RunError};
use redis::{RedisError, Value};
use tokio::select;
use tokio::time::timeout;

use super::link::{Link, Links, Question};
use super::reconnect::{Attempts, Moves};
use super::trouble::Trouble;

/// A link to a server, replaced when it breaks. No question has it for itself: each is sent over a
/// clone.
#[derive(Debug)]
pub(super) struct Lane {
    /// Makes the link, one at a time however many ask for it.
    pool: Pool<Links>,
    /// A clone of the pool's link, since a checkout costs more than all else that a question does
    /// here. Held to clone it, never across an `.await`.
    link: RwLock<Option<Link>>,
    attempts: Attempts,
    moves: Arc<Moves>,
    timeout: Duration,
}

/// The reply to a request.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) value: Value,
    /// The request was lost with its connection and sent again, so it may have been executed twice.
    pub(super) is_repeated: bool,
}

impl Lane {
    pub(super) fn new(links: Links) -> Self {
        let timeout = links.timeout;
        let (attempts, moves) = (links.attempts.clone(), Arc::clone(&links.moves));
        // A link knows itself whether it is broken, and when to try again is not the pool's affair.
        let pool = Pool::builder()
            .max_size(1)
            .test_on_check_out(false)
            .retry_connection(false)
            .connection_timeout(timeout)
            .max_lifetime(None)
            .idle_timeout(None)
            .error_sink(Box::new(attempts.clone()))
            .build_unchecked(links);
        Self { pool, link: RwLock::new(None), attempts, moves, timeout }
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
        self.ask_and_note(question).await.map(|reply| reply.value)
    }

    /// Like [`ask`](Self::ask), and says whether the request was sent twice: an earlier execution
    /// may have changed what the reply is about.
    ///
    /// # Cancel safety
    /// As that of [`ask`](Self::ask).
    pub(super) async fn ask_and_note(&self, question: &Question<'_>) -> Result<Reply, Trouble> {
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
    ) -> Result<Reply, Trouble> {
        match self.once(question, used).await {
            Err(Trouble::Reported(error)) if is_lost(&error) => {
                tracing::debug!(%error, "asking again over another connection");
                let value = self.once(question, used).await?;
                Ok(Reply { value, is_repeated: true })
            }
            reply => Ok(Reply { value: reply?, is_repeated: false }),
        }
    }

    async fn once(
        &self,
        question: &Question<'_>,
        used: &mut Option<Link>,
    ) -> Result<Value, Trouble> {
        let link = used.insert(self.link().await?);
        let reply = link.ask(question).await;
        if reply.as_ref().is_err_and(is_lost) {
            link.give_up();
        }
        reply.map_err(Trouble::Reported).inspect_err(|trouble| {
            if trouble.is_of_replica() {
                self.moves.note();
            }
        })
    }

    /// The link, or another one if that has broken.
    async fn link(&self) -> Result<Link, Trouble> {
        let link = self.link.read().unwrap_or_else(PoisonError::into_inner).clone();
        match link.filter(|link| !link.is_broken()) {
            Some(link) => Ok(link),
            None => self.connect().await,
        }
    }

    /// Another link; or why there is none, as soon as that is known.
    async fn connect(&self) -> Result<Link, Trouble> {
        let failure = self.attempts.next_failure();
        let link = select! {
            biased;
            link = self.check_out() => link?,
            error = failure.heard() => return Err(Trouble::Unconnected(error)),
        };
        let clone = Some(link.clone());
        *self.link.write().unwrap_or_else(PoisonError::into_inner) = clone;
        Ok(link)
    }

    async fn check_out(&self) -> Result<Link, Trouble> {
        loop {
            let guard = self.pool.get().await.map_err(|error| match error {
                RunError::TimedOut => Trouble::TimedOut(self.timeout),
                RunError::User(error) => Trouble::Unconnected(error),
            })?;
            // The guard goes back at once: others send over the same link meanwhile. If that has
            // broken, the pool drops it then, and makes another one.
            if !guard.is_broken() {
                return Ok(Link::clone(&guard));
            }
        }
    }
}

/// Whether nothing more can come over the connection that an error is from.
fn is_lost(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_io_error() || error.is_connection_dropped()
}
