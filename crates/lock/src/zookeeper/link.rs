//! Link: one session with a server, from its beginning to its end.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::select;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use zookeeper_client::{Client, StateWatcher};

use super::names::Names;
use super::options::{Settings, ZooKeeperOptions};
use super::places::Places;
use super::trouble::Trouble;
use super::visit::Visit;
use crate::{Session, Watchers};

/// A session that has been established.
///
/// What it holds is lost for good when it has ended: another one takes its place, which begins with
/// nothing. It is closed on the server then, if that still knows it, and when it is dropped.
pub(super) struct Link {
    /// `None` when it has ended: the client would keep the session alive, and all that it holds.
    /// Held for a clone, never across an `.await`.
    client: Mutex<Option<Client>>,
    /// The number of the session, by which the server marks its nodes.
    pub(super) id: i64,
    pub(super) names: Names,
    pub(super) settings: Settings,
    /// How long the server waits before it ends the session.
    pub(super) granted: Duration,
    pub(super) places: Places,
    ended: watch::Receiver<bool>,
    /// When the servers may have ended it, if nothing more is answered.
    until: watch::Receiver<Option<Instant>>,
    /// Its keeper hears when it is dropped.
    _dropped: oneshot::Sender<()>,
}

impl Link {
    /// Establishes a session, within the time of one operation.
    pub(super) async fn open(
        options: &ZooKeeperOptions,
        watchers: Watchers,
    ) -> Result<Arc<Self>, Trouble> {
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
        let client = connected.map_err(|_| Trouble::TimedOut(limit))??;
        let granted = client.session_timeout().min(LONGEST);
        let (end, ended) = watch::channel(false);
        let (alive, until) = watch::channel(Some(began + validity(granted)));
        let (sender, dropped) = oneshot::channel();
        let link = Arc::new(Self {
            names: options.names(),
            settings: options.settings,
            granted,
            places: Places::default(),
            ended,
            until,
            _dropped: sender,
            id: client.session_id().0,
            client: Mutex::new(Some(client.clone())),
        });
        let keeper = Keeper { client, link: Arc::downgrade(&link), began, granted, alive };
        tokio::spawn(async move {
            select! {
                () = keeper.keep() => {}
                _ = dropped => {}
            }
            end.send_replace(true);
            keeper.close();
            watchers.tell_all();
        });
        Ok(link)
    }

    /// What asks for us, unless it has ended, or may have.
    pub(super) fn client(&self) -> Option<Client> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        client.filter(|client| !client.state().is_terminated() && !self.session().has_ended())
    }

    /// Tells of its end, and knows by the clock when it may have ended.
    pub(super) fn session(&self) -> Session {
        Session::new(self.ended.clone()).alive_until(self.until.clone())
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("granted", &self.granted)
            .field("claims", &self.places.len())
            .field("has_ended", &self.client().is_none())
            .finish_non_exhaustive()
    }
}

/// Finds out when a session ends, and gives up what nobody asks for.
struct Keeper {
    client: Client,
    link: Weak<Link>,
    /// Before the session was asked for.
    began: Instant,
    granted: Duration,
    /// Tells until when the session is there for certain.
    alive: watch::Sender<Option<Instant>>,
}

impl Keeper {
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
    /// The client itself takes a session for ended only after 7/5 of the time-out, when somebody
    /// else may have had the key for long. A `sync` is answered by way of the leader, so a follower
    /// that has lost it cannot keep us in good faith. But the leader learns from its followers only
    /// every half tick whom they have heard of, and from one that dies then, not any more: the last
    /// it knows of us may be that much older, and as old as the pings of the client are apart. The
    /// last quarter is for that, and for clocks that do not run alike.
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

    fn close(&self) {
        if let Some(link) = self.link.upgrade() {
            *link.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Gives up what could not be given up when it should have been, and what nobody asks for.
    async fn sweep(&self) {
        loop {
            sleep(self.granted / BEATS).await;
            let Some(link) = self.link.upgrade() else { return };
            for (token, digest) in link.places.owed(Instant::now()) {
                // An error is tried again the next time. It ends with the session at the latest.
                let Ok(visit) = Visit::new(&link, token, digest) else { return };
                if visit.leave().await.is_ok() {
                    link.places.forget(token);
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

/// No server grants more, if it is one.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Between a question that was lost and the next.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
