//! One session with a server, from its beginning to its end.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::Session;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use zookeeper_client::Client;

use super::claim_table::ClaimTable;
use super::node_names::NodeNames;
use super::options::{NodeSettings, ZooKeeperOptions};

/// A session that has been established.
///
/// When it has ended, all that it holds is lost: the next session begins with nothing. An ended
/// session is closed on the server too, if the server still has it. So is one that is dropped.
pub(super) struct ServerSession {
    /// `None` when the session has ended: a client would keep it alive. Held for a clone, never
    /// across an `.await`.
    client: Mutex<Option<Client>>,
    /// The number of the session. The server stores it with each node of the session.
    pub(super) id: i64,
    pub(super) names: NodeNames,
    pub(super) settings: NodeSettings,
    /// How long the server waits before it ends the session.
    pub(super) granted: Duration,
    pub(super) claims: ClaimTable,
    ended: watch::Receiver<bool>,
    /// When the servers may end the session, unless they answer another request.
    until: watch::Receiver<Option<Instant>>,
    /// Tells the session's task that this was dropped.
    _dropped: oneshot::Sender<()>,
}

impl ServerSession {
    /// A session that a server has granted. It is alive `until` an instant, which each answer
    /// moves.
    pub(super) fn new(
        options: &ZooKeeperOptions,
        client: Client,
        ended: watch::Receiver<bool>,
        until: watch::Receiver<Option<Instant>>,
        dropped: oneshot::Sender<()>,
    ) -> Self {
        Self {
            names: options.names(),
            settings: options.settings,
            granted: client.session_timeout().min(LONGEST),
            claims: ClaimTable::default(),
            ended,
            until,
            _dropped: dropped,
            id: client.session_id().0,
            client: Mutex::new(Some(client)),
        }
    }

    /// The client, unless the session has ended or may have.
    pub(super) fn client(&self) -> Option<Client> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        client.filter(|client| !client.state().is_terminated() && !self.liveness().has_ended())
    }

    /// Drops the client, which ends the session on the server.
    pub(super) fn close(&self) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Reports the end of the session, and when it may have ended by the clock.
    pub(super) fn liveness(&self) -> Session {
        Session::new(self.ended.clone()).alive_until(self.until.clone())
    }
}

/// More than any server grants.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
