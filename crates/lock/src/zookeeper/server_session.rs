//! Link: one session with a server, from its beginning to its end.

use std::fmt;
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
/// What it holds is lost for good when it has ended: another one takes its place, which begins with
/// nothing. It is closed on the server then, if that still knows it, and when it is dropped.
pub(super) struct ServerSession {
    /// `None` when it has ended: the client would keep the session alive, and all that it holds.
    /// Held for a clone, never across an `.await`.
    client: Mutex<Option<Client>>,
    /// The number of the session, by which the server marks its nodes.
    pub(super) id: i64,
    pub(super) names: NodeNames,
    pub(super) settings: NodeSettings,
    /// How long the server waits before it ends the session.
    pub(super) granted: Duration,
    pub(super) places: ClaimTable,
    ended: watch::Receiver<bool>,
    /// When the servers may have ended it, if nothing more is answered.
    until: watch::Receiver<Option<Instant>>,
    /// Its task hears when it is dropped.
    _dropped: oneshot::Sender<()>,
}

impl ServerSession {
    /// A session that a server has granted. It is alive `until` then, if nothing more is answered.
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
            places: ClaimTable::default(),
            ended,
            until,
            _dropped: dropped,
            id: client.session_id().0,
            client: Mutex::new(Some(client)),
        }
    }

    /// What asks for us, unless it has ended, or may have.
    pub(super) fn client(&self) -> Option<Client> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        client.filter(|client| !client.state().is_terminated() && !self.liveness().has_ended())
    }

    /// Lets the client go, which ends the session on the server.
    pub(super) fn close(&self) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Tells of its end, and knows by the clock when it may have ended.
    pub(super) fn liveness(&self) -> Session {
        Session::new(self.ended.clone()).alive_until(self.until.clone())
    }
}

impl fmt::Debug for ServerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSession")
            .field("granted", &self.granted)
            .field("claims", &self.places.len())
            .field("has_ended", &self.client().is_none())
            .finish_non_exhaustive()
    }
}

/// No server grants more, if it is one.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
