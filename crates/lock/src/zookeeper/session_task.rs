//! The task of a session: it begins one, and finds out when that ends.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bellwether::store::Watchers;
use tokio::select;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use zookeeper_client::{Client, StateWatcher};

use super::claim_operation::{ClaimOperation, PAUSE};
use super::error::ZooKeeperError;
use super::options::ZooKeeperOptions;
use super::server_session::ServerSession;

/// Establishes a session, within the time of one operation.
pub(super) async fn open(
    options: &ZooKeeperOptions,
    watchers: Watchers,
) -> Result<Arc<ServerSession>, ZooKeeperError> {
    let began = Instant::now();
    // One round over the hosts is what the time of an operation has room for.
    let connector =
        Client::connector().with_session_timeout(options.session_timeout).with_fail_eagerly();
    let connector = options
        .auth
        .iter()
        .fold(connector, |connector, (scheme, secret)| connector.with_auth(scheme, secret));
    let limit = options.settings.timeout;
    let connected = timeout(limit, connector.connect(&options.hosts)).await;
    let client = connected.map_err(|_| ZooKeeperError::TimedOut(limit))??;
    let (end, ended) = watch::channel(false);
    let (sender, dropped) = oneshot::channel();
    let alive = watch::Sender::new(None);
    let session = ServerSession::new(options, client.clone(), ended, alive.subscribe(), sender);
    alive.send_replace(Some(began + validity(session.granted)));
    let session = Arc::new(session);
    let task = SessionTask {
        client,
        session: Arc::downgrade(&session),
        began,
        granted: session.granted,
        alive,
    };
    tokio::spawn(async move {
        select! {
            () = task.keep() => {}
            _ = dropped => {}
        }
        end.send_replace(true);
        if let Some(session) = task.session.upgrade() {
            session.close();
        }
        watchers.tell_all();
    });
    Ok(session)
}

/// Finds out when a session ends, and gives up claims that are not asked for.
struct SessionTask {
    client: Client,
    session: Weak<ServerSession>,
    /// Before the session was asked for.
    began: Instant,
    granted: Duration,
    /// Tells until when the session is there for certain.
    alive: watch::Sender<Option<Instant>>,
}

impl SessionTask {
    /// Returns when the session has ended, or may have.
    async fn keep(&self) {
        select! {
            () = has_terminated(self.client.state_watcher()) => {}
            () = self.beat() => {}
            () = self.sweep() => {}
        }
    }

    /// Returns when nothing that was sent within three quarters of the session's time-out has been
    /// answered.
    ///
    /// The client itself takes a session for ended only after 7/5 of the time-out, when another
    /// holder may have had the key for long. A `sync` is answered by way of the leader, so a follower
    /// that has lost it cannot keep us in good faith. But followers report live sessions only every half
    /// tick. If one dies, the leader's view of this session may be stale by half a tick and one ping
    /// interval of the client. The last quarter is for that, and for clocks that do not run alike.
    async fn beat(&self) {
        let mut heard = self.began;
        loop {
            sleep_until(heard + self.granted / BEATS).await;
            let until = heard + validity(self.granted);
            match timeout_at(until, self.answered()).await {
                // An answer that comes later is of no use: holders know by the clock that it is over.
                Ok(asked) if Instant::now() < until => heard = asked,
                Ok(_) | Err(_) => return,
            }
            self.alive.send_replace(Some(heard + validity(self.granted)));
        }
    }

    /// When the question was sent that was answered.
    async fn answered(&self) -> Instant {
        loop {
            let asked = Instant::now();
            match self.client.sync("/").await {
                Ok(()) => return asked,
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Gives up what could not be given up when it should have been, and claims that are not asked for.
    async fn sweep(&self) {
        loop {
            sleep(self.granted / BEATS).await;
            let Some(session) = self.session.upgrade() else { return };
            for (token, digest) in session.places.owed(Instant::now()) {
                // An error is tried again the next time. It ends with the session at the latest.
                let Ok(operation) = ClaimOperation::new(&session, token, digest) else { return };
                if operation.leave().await.is_ok() {
                    session.places.forget(token);
                }
            }
        }
    }
}

/// How long after a question that was answered a session is there for certain.
fn validity(granted: Duration) -> Duration {
    granted - granted / BEATS
}

async fn has_terminated(mut states: StateWatcher) {
    let mut state = states.state();
    while !state.is_terminated() {
        state = states.changed().await;
    }
}

/// How often within a session's time-out the server is asked whether it lives. A connection that is
/// silent for as long is taken to be broken, which leaves as long for another one.
const BEATS: u32 = 4;
