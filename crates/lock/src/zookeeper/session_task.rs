//! The task of a session: it begins the session, and notices its end.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bellwether::store::Watchers;
use tokio::select;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use zookeeper_client::{Client, StateWatcher};

use super::claim_operation::{ClaimOperation, PAUSE};
use super::claim_table::ClaimTable;
use super::error::ZooKeeperError;
use super::options::ZooKeeperOptions;
use super::server_session::ServerSession;
use crate::Session;

/// Establishes a session, within the time of one operation.
pub(super) async fn open(
    options: &ZooKeeperOptions,
    watchers: Watchers,
) -> Result<Arc<ServerSession>, ZooKeeperError> {
    let began = Instant::now();
    // Fail after one round over the hosts: the timeout of an operation allows no second one.
    let connector =
        Client::connector().with_session_timeout(options.session_timeout).with_fail_eagerly();
    let connector = options
        .auth
        .iter()
        .fold(connector, |connector, (scheme, secret)| connector.with_auth(scheme, secret));
    let limit = options.timeout;
    let connected = timeout(limit, connector.connect(&options.hosts)).await;
    let client = connected.map_err(|_| ZooKeeperError::TimedOut(limit))??;
    let granted = client.session_timeout().min(LONGEST);
    let (alive, until) = watch::channel(Some(began + validity(granted)));
    let (sender, dropped) = oneshot::channel();
    let session = Arc::new(ServerSession {
        client: Mutex::new(Some(client.clone())),
        id: client.session_id().0,
        options: options.clone(),
        granted,
        claims: ClaimTable::default(),
        liveness: Session::new(until),
        _dropped: sender,
    });
    let task = SessionTask { client, session: Arc::downgrade(&session), began, granted, alive };
    tokio::spawn(async move {
        select! {
            () = task.keep() => {}
            _ = dropped => {}
        }
        task.alive.send_replace(Some(Instant::now()));
        if let Some(session) = task.session.upgrade() {
            session.close();
        }
        watchers.tell_all();
    });
    Ok(session)
}

/// Notices when a session ends, and releases claims that are no longer asked for.
struct SessionTask {
    client: Client,
    session: Weak<ServerSession>,
    /// An instant before the session was requested.
    began: Instant,
    granted: Duration,
    /// Publishes until when the session exists for certain.
    alive: watch::Sender<Option<Instant>>,
}

impl SessionTask {
    /// Returns when the session has ended, or may have.
    async fn keep(&self) {
        select! {
            () = has_terminated(self.client.state_watcher()) => {}
            () = self.heartbeat() => {}
            () = self.sweep() => {}
        }
    }

    /// Sends heartbeats. Returns when no request that was sent within three quarters of the
    /// session's timeout has been answered.
    ///
    /// The client itself notices the end of a session only after 7/5 of the timeout, when another
    /// holder may have had the key for long. A `sync` is answered by way of the leader, so a
    /// follower that has lost its leader cannot answer it. But followers report live sessions only
    /// every half tick. If one dies, the leader's view of this session may be stale by half a tick
    /// and one ping interval of the client. The last quarter is for that, and for clocks that run
    /// at different speeds.
    async fn heartbeat(&self) {
        let mut asked_at = self.began;
        loop {
            sleep_until(asked_at + self.granted / HEARTBEATS).await;
            let until = asked_at + validity(self.granted);
            match timeout_at(until, self.answered()).await {
                // A later answer is of no use: by the clock, holders have lost their keys.
                Ok(asked) if Instant::now() < until => asked_at = asked,
                Ok(_) | Err(_) => return,
            }
            self.alive.send_replace(Some(asked_at + validity(self.granted)));
        }
    }

    /// Waits for an answer, and returns when its request was sent.
    async fn answered(&self) -> Instant {
        loop {
            let asked = Instant::now();
            match self.client.sync("/").await {
                Ok(()) => return asked,
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Repeats releases that failed, and releases claims that are no longer asked for.
    async fn sweep(&self) {
        loop {
            sleep(self.granted / HEARTBEATS).await;
            let Some(session) = self.session.upgrade() else { return };
            for claim in session.claims.to_release(Instant::now()) {
                // A release that fails is repeated next time. The end of the session releases, too.
                let Ok(operation) = ClaimOperation::new(&session, &claim) else { return };
                _ = operation.leave().await;
            }
        }
    }
}

/// How long after an answered request a session exists for certain.
fn validity(granted: Duration) -> Duration {
    granted - granted / HEARTBEATS
}

async fn has_terminated(mut states: StateWatcher) {
    let mut state = states.state();
    while !state.is_terminated() {
        state = states.changed().await;
    }
}

/// More than any server grants.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// How many heartbeats are sent within a session's timeout.
const HEARTBEATS: u32 = 4;
