//! Journeys: a request that follows redirections until a node has answered it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::node::RedisNode;
use crate::retry_pauses::RetryPauses;
use crate::server_error::ServerError;
use bellwether::store::StoreErrorKind;

/// How far a request has come.
pub(super) struct Journey {
    pub(super) deadline: Instant,
    /// Until when it is repeated after a pause. The rest is for the reply, without which it is not
    /// known whether it was executed.
    repeat_until: Instant,
    /// The node that it goes to next, and whether that is importing its slot (`ASKING`). None is the
    /// owner of its slot.
    pub(super) next: Option<(Arc<RedisNode>, bool)>,
    /// Whether a node may have executed it without a reply.
    pub(super) may_be_repeated: bool,
    /// How many redirections were followed.
    redirections: u32,
    /// How many pauses there were.
    pauses: u32,
}

impl Journey {
    /// A request that may take as long as `timeout`.
    pub(super) fn new(deadline: Instant, timeout: Duration) -> Self {
        let (redirections, pauses) = (0, 0);
        let repeat_until = deadline - timeout / 4;
        Self { deadline, repeat_until, next: None, may_be_repeated: false, redirections, pauses }
    }

    /// Follows a redirection. The first ones are followed at once. While nodes disagree, they send
    /// requests back and forth, so there are pauses between later ones. False if there were too
    /// many.
    pub(super) async fn follow(&mut self, node: Arc<RedisNode>, asks: bool) -> bool {
        self.redirections += 1;
        self.next = Some((node, asks));
        self.redirections <= AT_ONCE || self.redirections <= MOST && self.pause().await
    }

    /// Waits before the request is repeated, because its slot is moving. Until the slot has moved, it
    /// may be sent to the other node and back any number of times. False if there is no time left
    /// for that.
    pub(super) async fn await_move(&mut self) -> bool {
        self.redirections = 0;
        self.pause().await
    }

    /// Waits before the request is repeated. False if there is no time left for that.
    pub(super) async fn pause(&mut self) -> bool {
        self.pauses += 1;
        let until = Instant::now() + PAUSES.after(self.pauses);
        if until >= self.repeat_until {
            return false;
        }
        sleep_until(until).await;
        true
    }

    /// Notes an error after which the node may still have executed the request.
    pub(super) fn note_lost(&mut self, error: &ServerError) {
        // An error without a code is no reply.
        self.may_be_repeated |= matches!(error, ServerError::Other(StoreErrorKind::TimedOut, _))
            || matches!(error, ServerError::Reported(error) if error.code().is_none());
    }
}

/// A slot of small values moves within milliseconds.
const PAUSES: RetryPauses = RetryPauses::new(Duration::from_millis(2), Duration::from_millis(50));

/// How many redirections are followed without a pause.
const AT_ONCE: u32 = 4;
/// How many redirections are followed.
const MOST: u32 = 16;
