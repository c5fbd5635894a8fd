//! `ZooKeeperLock`: locks by sessions, in the order of arrival.

mod claim_operation;
mod claim_table;
mod error;
mod node_names;
mod options;
mod server_session;
mod session_task;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellwether::{Digest, Key, StoreError, StoreErrorKind};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::time::{Instant, sleep};

pub use self::options::ZooKeeperOptions;

use self::claim_operation::ClaimOperation;
use self::error::ZooKeeperError;
use self::server_session::ServerSession;
use self::session_task::open;
use super::{Answer, Attempt, Claim, Fenced, Lock, Released, Renew, Request, Watch, Watchers};

/// Locks in a ZooKeeper ensemble (3.5.3 or later): first come, first served, held by a session.
///
/// A claim makes an ephemeral sequential node below the key's own parent, and holds the key when its
/// node is the first. A waiter watches the one node before its own, so a release wakes one process
/// and no herd. A try leaves no node; a claim that waits keeps its node, and with it its
/// place, until it is released or has not asked again for the session's time-out.
///
/// A handle: clones share one session. It beats by itself, and is closed with the last handle. All
/// nodes are below `/bellwether/<namespace>`, and the parent of a key that is no longer wanted is
/// removed by the servers, within a minute or two.
///
/// # When a key is lost
/// With the session ([`Term::Session`](super::Term::Session)). The holder is told when the servers
/// say that it has expired, and as soon as they *may* have ended it: when nothing that was sent
/// within three quarters of the session's time-out has been answered. That is before another holder is
/// granted the key, as long as this process runs (and one that stood still
/// [knows](super::Held::is_lost) when it looks) and the time-out is more than three of the servers'
/// ticks. A connection that breaks, or a server that goes, loses nothing if another one is found in
/// that time. (What Curator calls *suspended* is not told; what it calls *lost* is told earlier.)
///
/// Once told, it is final: the session is closed even if the servers still know it, its nodes never
/// count as ours again, and the next claim begins with a new session. A process that was
/// stopped is told when it goes on, which is too late for what it does in that moment:
/// [`Fenced`] is for that. The fence is the transaction that made the node (`czxid`), which grows
/// over all keys, sessions and restarts of an ensemble.
///
/// A node that is removed by hand frees its key. Its holder watches it from 0.1 s after the grant on,
/// and is told of that within about a round trip.
///
/// # What it cannot do
/// A key cannot be taken over: it is free when its holder's session ends, which the servers see to.
/// It is not reentrant either. The lease that is asked for has no meaning. Nothing is heard of
/// releases of other processes but by waiting: [`watch`](Lock::watch) tells of this one's.
///
/// # Errors
/// An operation takes no longer than [`ZooKeeperOptions::timeout`], or twice that if a session is to
/// be established first, besides the patience it was given. One that timed out may have been done all
/// the same. A claim that waits while the session ends goes on with another one, if that is
/// established within the same time.
/// What a release could not remove is removed in the background, as soon as the servers answer.
#[derive(Clone)]
pub struct ZooKeeperLock(Arc<Inner>);

struct Inner {
    options: ZooKeeperOptions,
    watchers: Watchers,
    /// The session, or the future that establishes it. Held for a look, never across an `.await`.
    session: Mutex<Option<Connecting>>,
}

/// All operations that need the session wait for the same one.
type Connecting = Shared<BoxFuture<'static, Result<Arc<ServerSession>, StoreError>>>;

impl ZooKeeperLock {
    /// Connects to the servers of an ensemble, with the defaults of [`ZooKeeperOptions`].
    ///
    /// # Errors
    /// If it is no such list, if no server can be reached in time, or if they refuse.
    pub async fn connect(servers: &str) -> Result<Self, StoreError> {
        let options = ZooKeeperOptions::new(servers)
            .map_err(|error| StoreError::new(StoreErrorKind::Misconfigured, error.to_string()))?;
        options.connect().await
    }
}

impl ZooKeeperOptions {
    /// Connects, and establishes a session.
    ///
    /// # Errors
    /// If no server can be reached in time, or if they refuse the credentials.
    pub async fn connect(self) -> Result<ZooKeeperLock, StoreError> {
        let lock = self.connect_lazily();
        lock.0.session().await?;
        Ok(lock)
    }

    /// A lock that connects when it is first used, for services that start before their ZooKeeper.
    pub fn connect_lazily(self) -> ZooKeeperLock {
        let (watchers, session) = (Watchers::default(), Mutex::default());
        ZooKeeperLock(Arc::new(Inner { options: self, watchers, session }))
    }
}

impl Inner {
    /// The session, which is established if there is none.
    async fn session(&self) -> Result<Arc<ServerSession>, StoreError> {
        let connecting = {
            let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
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
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let established = session.as_ref()?.peek()?.as_ref().ok()?;
        established.client().is_some().then(|| Arc::clone(established))
    }

    /// In a task of its own: an operation that waits for it may be dropped, and others wait for it too.
    fn establish(&self) -> Connecting {
        let (options, watchers) = (self.options.clone(), self.watchers.clone());
        let connecting = async move {
            let opening = tokio::spawn(async move { open(&options, watchers).await });
            let opened = opening.await.unwrap_or(Err(ZooKeeperError::Broken));
            opened.map_err(|trouble| trouble.during("connecting", None))
        };
        connecting.boxed().shared()
    }

    async fn acquire(&self, request: &Request) -> Result<Attempt, ZooKeeperError> {
        let (token, digest) = (request.claim.token(), request.claim.key().digest());
        let (began, limit) = (Instant::now(), self.options.settings.timeout);
        let ends = began + request.patience.min(FOR_EVER);
        // A session that has ended costs the place, and no more: the claim stands in line again, if
        // there is another session in time.
        let (gives_up, mut connects_until) = (ends.max(began + limit), began);
        loop {
            let acquired = async {
                let session = self.session().await.map_err(ZooKeeperError::Unconnected)?;
                ClaimOperation::new(&session, token, digest)?.acquire(request, ends).await
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

    async fn renew(&self, claim: &Claim) -> Result<Renew, ZooKeeperError> {
        // What was granted in a session that has ended is lost, whatever the servers say.
        let Some(session) = self.established() else { return Ok(Renew::Lost) };
        let (token, digest) = (claim.token(), claim.key().digest());
        let answer = async { ClaimOperation::new(&session, token, digest)?.renew().await }.await;
        match answer {
            Err(ZooKeeperError::Ended) => Ok(Renew::Lost),
            answer => answer,
        }
    }

    async fn verify(&self, claim: &Claim) -> Result<Renew, ZooKeeperError> {
        let Some(session) = self.established() else { return Ok(Renew::Lost) };
        let (token, digest) = (claim.token(), claim.key().digest());
        // One watch at a time, however often it is verified.
        if session.places.is_watched(token) {
            return self.renew(claim).await;
        }
        match async { ClaimOperation::new(&session, token, digest)?.watched().await }.await {
            Err(ZooKeeperError::Ended) | Ok(None) => Ok(Renew::Lost),
            Err(trouble) => Err(trouble),
            Ok(Some(watcher)) => {
                session.places.watched(token, true);
                let (session, watchers) = (Arc::downgrade(&session), self.watchers.clone());
                // It ends with the node, or with the session.
                tokio::spawn(async move {
                    watcher.changed().await;
                    if let Some(session) = session.upgrade() {
                        session.places.watched(token, false);
                    }
                    watchers.tell(&digest);
                });
                Ok(Renew::Held)
            }
        }
    }

    async fn release(&self, claim: &Claim) -> Result<Released, ZooKeeperError> {
        let (token, digest) = (claim.token(), claim.key().digest());
        let session = self.session().await.map_err(ZooKeeperError::Unconnected)?;
        session.places.leave(token);
        let was_held = ClaimOperation::new(&session, token, digest)?.leave().await?;
        session.places.forget(token);
        self.tell(&digest);
        Ok(if was_held { Released::Freed } else { Released::NotHeld })
    }

    fn tell(&self, digest: &Digest) {
        self.watchers.tell(digest);
    }
}

impl Lock for ZooKeeperLock {
    fn watch(&self, key: &Key) -> Watch {
        self.0.watchers.watch(key.digest())
    }

    fn acquire(&self, request: Request) -> Answer<Attempt> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let attempt = inner.acquire(&request).await;
            attempt.map_err(|trouble| trouble.during("acquiring", Some(request.claim.key())))
        })
    }

    fn renew(&self, claim: &Claim, _: Duration) -> Answer<Renew> {
        let (inner, claim) = (Arc::clone(&self.0), claim.clone());
        Box::pin(async move {
            let answer = inner.renew(&claim).await;
            answer.map_err(|trouble| trouble.during("renewing", Some(claim.key())))
        })
    }

    fn verify(&self, claim: &Claim) -> Option<Answer<Renew>> {
        let (inner, claim) = (Arc::clone(&self.0), claim.clone());
        Some(Box::pin(async move {
            let answer = inner.verify(&claim).await;
            answer.map_err(|trouble| trouble.during("verifying", Some(claim.key())))
        }))
    }

    fn release(&self, claim: Claim) -> Answer<Released> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let answer = inner.release(&claim).await;
            answer.map_err(|trouble| trouble.during("releasing", Some(claim.key())))
        })
    }
}

impl Fenced for ZooKeeperLock {}

/// Shows where the servers are, and no credentials.
impl fmt::Debug for ZooKeeperLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperLock")
            .field("options", &self.0.options)
            .field("session", &self.0.established())
            .finish_non_exhaustive()
    }
}

/// Between a session that could not be established and the next.
const RECONNECT: Duration = Duration::from_millis(100);

/// Longer than any clock is sure to count on from now.
const FOR_EVER: Duration = Duration::from_secs(366 * 24 * 60 * 60);
