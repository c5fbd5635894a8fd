//! One session with a server, from its beginning to its end.

use std::sync::Mutex;
use std::time::Duration;

use bellwether::adapter::locked;
use tokio::sync::oneshot;
use zookeeper_client::Client;

use super::claim_table::ClaimTable;
use super::options::ZooKeeperOptions;
use crate::Session;

/// A session that has been established.
///
/// When it has ended, all that it holds is lost: the next session begins with nothing. An ended
/// session is closed on the server too, if the server still has it. So is one that is dropped.
pub(super) struct ServerSession {
    /// `None` when the session has ended: a client would keep it alive. Held for a clone, never
    /// across an `.await`.
    pub(super) client: Mutex<Option<Client>>,
    /// The number of the session. The server stores it with each node of the session.
    pub(super) id: i64,
    pub(super) options: ZooKeeperOptions,
    /// How long the server waits before it ends the session.
    pub(super) granted: Duration,
    pub(super) claims: ClaimTable,
    /// Reports the end of the session, and when it may have ended by the clock.
    pub(super) liveness: Session,
    /// Tells the session's task that this was dropped.
    pub(super) _dropped: oneshot::Sender<()>,
}

impl ServerSession {
    /// The client, unless the session has ended or may have.
    pub(super) fn client(&self) -> Option<Client> {
        let client = locked(&self.client).clone();
        client.filter(|client| !client.state().is_terminated() && !self.liveness.has_ended())
    }

    /// Drops the client, which ends the session on the server.
    pub(super) fn close(&self) {
        *locked(&self.client) = None;
    }
}
