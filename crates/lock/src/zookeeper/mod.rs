//! `ZooKeeperLock`: locks by sessions, in the order of arrival.

mod claim_operation;
mod claim_table;
mod error;
mod node_names;
mod options;
mod server_session;
mod session_task;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::adapter::locked;
use bellwether::{ConfigError, Key};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::time::{Instant, sleep};

pub use self::options::ZooKeeperOptions;

use self::claim_operation::ClaimOperation;
use self::error::ZooKeeperError;
use self::server_session::ServerSession;
use self::session_task::open;
use super::{Attempt, Claim, Fenced, Lock, LockFuture, Released, Renew, Request, Watch, Watchers};
use crate::instants::far;
use crate::{LocalQueues, LockError};

/// Locks in a ZooKeeper ensemble (3.5.3 or later): first come, first served, held by a session.
///
/// A claim makes an ephemeral sequential node below the key's own parent, and holds the key when
/// its node is the first. A waiter watches the one node before its own, so a release wakes one
/// process and no herd. A try leaves no node. A claim that waits keeps its node and its place,
/// until it is released or does not ask again within the session timeout.
///
/// A handle: clones share one session. The session sends heartbeats by itself, and is closed with
/// the last handle. All nodes are below `/bellwether/<namespace>`. The servers remove the parent of
/// an unused key within a minute or two.
///
/// # When a key is lost
/// With the session ([`Term::Session`](super::Term::Session)). The holder is told when the servers
/// report that the session has expired, and as soon as it *may* have: when no request that was sent
/// within three quarters of the session timeout has been answered. That is before another holder
/// gets the key, if the timeout is more than three of the servers' ticks. It needs no task to run:
/// a process that stood still can [see](super::LockStatus::is_lost) it at once. When a connection
/// breaks or a server stops, nothing is lost if another server is found in that time. (Curator's
/// *suspended* is not reported; its *lost* is reported earlier.)
///
/// A reported loss is final: the session is closed even if the servers still have it, its nodes no
/// longer count, and the next claim begins a new session. A process that was stopped learns of the
/// loss when it runs again, which may be after its next write; [`Fenced`] is for that. The fence is
/// the transaction that made the node (`czxid`), which grows over all keys, sessions and restarts
/// of an ensemble.
///
/// A node that is removed by hand frees its key. The holder watches its node from 0.1 s after the
/// grant on, and is told within about a round trip.
///
/// # What it cannot do
/// A key cannot be taken over: it becomes free when its holder's session ends. The lock is not
/// reentrant, and it ignores the requested lease. [`watch`](Lock::watch) reports releases of this
/// process only; to learn of others, a claim has to wait.
///
/// # Errors
/// An operation takes no longer than its patience and [`ZooKeeperOptions::timeout`], or twice the
/// timeout if it has to establish a session first. An operation that timed out may have been done.
/// A claim that waits while the session ends goes on with a new session, if that is established
/// within the timeout. If a release fails, it is repeated in the background as soon as the servers
/// answer.
#[derive(Clone)]
pub struct ZooKeeperLock(Arc<Inner>);

struct Inner {
    options: ZooKeeperOptions,
    watchers: Watchers,
    queues: LocalQueues,
    /// The session, or the future that establishes it. Held to read or replace it, never across an
    /// `.await`.
    session: Mutex<Option<Connecting>>,
}

/// All operations that need the session wait for the same one.
type Connecting = Shared<BoxFuture<'static, Result<Arc<ServerSession>, LockError>>>;

impl ZooKeeperLock {
    /// Connects to an ensemble, and establishes a session.
    ///
    /// # Errors
    /// If an option is wrong, if no server can be reached in time, or if they refuse the
    /// credentials.
    pub async fn connect(options: ZooKeeperOptions) -> Result<Self, LockError> {
        let lock = Self::connect_lazily(options)?;
        lock.0.session().await?;
        Ok(lock)
    }

    /// A lock that connects when it is first used, for services that start before their ZooKeeper.
    ///
    /// # Errors
    /// If an option is wrong: the first one.
    pub fn connect_lazily(options: ZooKeeperOptions) -> Result<Self, ConfigError> {
        options.wrong.result()?;
        let (watchers, queues) = <(Watchers, LocalQueues)>::default();
        let session = Mutex::default();
        Ok(Self(Arc::new(Inner { options, watchers, queues, session })))
    }
}

impl Inner {
    /// The session, which is established if there is none.
    async fn session(&self) -> Result<Arc<ServerSession>, LockError> {
        let connecting = {
            let mut session = locked(&self.session);
            let usable = session.take().filter(|connecting| match connecting.peek() {
                None => true,
                Some(established) => {
                    established.as_ref().is_ok_and(|session| session.client().is_some())
                }
            });
            session.insert(usable.unwrap_or_else(|| self.establish())).clone()
        };
        connecting.await
    }

    /// The session, if there is one.
    fn established(&self) -> Option<Arc<ServerSession>> {
        let session = locked(&self.session);
        let established = session.as_ref()?.peek()?.as_ref().ok()?;
        established.client().is_some().then(|| Arc::clone(established))
    }

    /// Establishes a session in a task of its own: an operation that waits for it may be dropped
    /// while others wait, too.
    fn establish(&self) -> Connecting {
        let options = self.options.clone();
        let watchers = self.watchers.clone();
        let connecting = async move {
            let opening = tokio::spawn(async move { open(&options, watchers).await });
            let opened = opening.await.unwrap_or(Err(ZooKeeperError::Ended));
            opened.map_err(|error| error.during("connecting", None))
        };
        connecting.boxed().shared()
    }

    async fn acquire(self: Arc<Self>, request: Request) -> Result<Attempt, ZooKeeperError> {
        let began = Instant::now();
        let limit = self.options.timeout;
        let ends = far(began, request.patience);
        // When the session ends, the claim loses its place, and joins the queue again if a new
        // session is established in time.
        let gives_up = ends.max(began + limit);
        let mut connects_until = began;
        loop {
            let acquired = async {
                let session = self.session().await.map_err(ZooKeeperError::Unconnected)?;
                ClaimOperation::new(&session, &request.claim)?.acquire(&request, ends).await
            };
            match acquired.await {
                Err(ZooKeeperError::Ended) if Instant::now() < gives_up => {
                    connects_until = Instant::now() + limit;
                }
                Err(ZooKeeperError::Unconnected(_)) if Instant::now() < connects_until => {
                    sleep(RECONNECT).await;
                }
                attempt => return attempt,
            }
        }
    }

    async fn renew(self: Arc<Self>, claim: Claim) -> Result<Renew, ZooKeeperError> {
        // A grant of a session that has ended is lost, even if the servers still have the session.
        let session = self.established().ok_or(ZooKeeperError::Ended)?;
        ClaimOperation::new(&session, &claim)?.renew().await
    }

    async fn verify(self: Arc<Self>, claim: Claim) -> Result<Renew, ZooKeeperError> {
        let session = self.established().ok_or(ZooKeeperError::Ended)?;
        let operation = ClaimOperation::new(&session, &claim)?;
        let (token, digest) = (claim.token(), claim.key().digest());
        // One watch at a time is enough.
        if session.claims.is_watched(token) {
            return operation.renew().await;
        }
        let Some(watcher) = operation.watched().await? else { return Ok(Renew::Lost) };
        session.claims.set_watched(token, true);
        let session = Arc::downgrade(&session);
        let watchers = self.watchers.clone();
        // The task ends with the node, or with the session.
        tokio::spawn(async move {
            watcher.changed().await;
            if let Some(session) = session.upgrade() {
                session.claims.set_watched(token, false);
            }
            watchers.tell(&digest, None);
        });
        Ok(Renew::Held)
    }

    async fn release(self: Arc<Self>, claim: Claim) -> Result<Released, ZooKeeperError> {
        let session = self.session().await.map_err(ZooKeeperError::Unconnected)?;
        let was_held = ClaimOperation::new(&session, &claim)?.leave().await?;
        self.watchers.tell(&claim.key().digest(), None);
        Ok(if was_held { Released::Freed } else { Released::NotHeld })
    }
}

impl Lock for ZooKeeperLock {
    fn watch(&self, key: &Key) -> Watch {
        self.0.watchers.watch(key.digest())
    }

    fn acquire(&self, request: Request) -> LockFuture<Attempt> {
        let key = request.claim.key().clone();
        answer("acquiring", key, Arc::clone(&self.0).acquire(request))
    }

    fn renew(&self, claim: &Claim, _: Duration) -> LockFuture<Renew> {
        let renewed = Arc::clone(&self.0).renew(claim.clone()).map(lost_with_session);
        answer("renewing", claim.key().clone(), renewed)
    }

    fn verify(&self, claim: &Claim) -> Option<LockFuture<Renew>> {
        let verified = Arc::clone(&self.0).verify(claim.clone()).map(lost_with_session);
        Some(answer("verifying", claim.key().clone(), verified))
    }

    fn release(&self, claim: Claim) -> LockFuture<Released> {
        let key = claim.key().clone();
        answer("releasing", key, Arc::clone(&self.0).release(claim))
    }

    fn local_queues(&self) -> LocalQueues {
        self.0.queues.clone()
    }
}

/// An answer whose error says what was done with which key.
fn answer<T: 'static>(
    what: &'static str,
    key: Key,
    answer: impl Future<Output = Result<T, ZooKeeperError>> + Send + 'static,
) -> LockFuture<T> {
    Box::pin(answer.map(move |answer| answer.map_err(|error| error.during(what, Some(&key)))))
}

/// What a session held is lost with it.
fn lost_with_session(answer: Result<Renew, ZooKeeperError>) -> Result<Renew, ZooKeeperError> {
    match answer {
        Err(ZooKeeperError::Ended) => Ok(Renew::Lost),
        answer => answer,
    }
}

impl Fenced for ZooKeeperLock {}

// Shows where the servers are, and no credentials.
bellwether::debug_fields! { ZooKeeperLock => |it|
    options = it.0.options, claims = it.0.established().map_or(0, |session| session.claims.len())
}

/// The pause between two attempts to establish a session.
const RECONNECT: Duration = Duration::from_millis(100);
