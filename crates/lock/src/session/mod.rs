//! Locks by sessions: a connection of its own for every claim, while it waits and while it holds.
//!
//! A database grants a lock per session (`GET_LOCK`, advisory locks) to the same session again, so
//! two claims must never share one. Each claim has a [task](claim_task::ClaimTask), which has the
//! connection; all operations send their requests to that task. The task ends with the claim.
//!
//! A database does not report that it has ended a session, and may not notice for hours that a
//! client is gone. So both sides end a silent session. The server ends a session from which it has
//! received nothing for the session timeout. The task sends a request three times as often, and
//! gives the session up when its last answered request is almost as old as the timeout. So the task
//! gives up first. The holder compares with the same instant
//! ([`Session::alive_until`](super::Session::alive_until)), so it knows even if the task stood
//! still with the whole runtime.

mod claim_task;
mod claims;
mod context;
mod database;
mod error;
mod name;
mod options;
mod pool;
mod settings;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether::Key;
use tokio::sync::oneshot;
use tokio::time::timeout;

pub use self::options::SessionOptions;

pub(super) use self::database::{Database, TakenName};
pub(super) use self::error::SessionError;
pub(super) use self::name::Name;
pub(super) use self::options::DatabaseAddress;
pub(super) use self::settings::SessionSettings;

use self::claim_task::ClaimTask;
use self::claims::{ClaimEntry, ClaimRequest, Claims, Wish};
use self::context::SessionContext;
use self::pool::SessionPool;
use super::{Attempt, Claim, LockFuture, Released, Renew, Request, Watch, Watchers};
use crate::{LocalQueues, LockError, LockErrorKind};

/// A lock by the sessions of a database.
pub(super) struct Sessions<D: Database> {
    claims: Arc<Claims>,
    context: Arc<SessionContext<D>>,
}

impl<D: Database> Sessions<D> {
    pub(super) fn new(database: D, settings: SessionSettings) -> Self {
        let pool = SessionPool::new(database, &settings);
        let watchers = Watchers::default();
        let context = SessionContext { pool, settings, watchers, queues: LocalQueues::default() };
        Self { claims: Arc::default(), context: Arc::new(context) }
    }

    /// Connects and creates missing tables, so that an error shows before the first request.
    pub(super) async fn prepare(&self) -> Result<(), LockError> {
        let pooled = self.context.pool.get(tokio::time::Instant::now()).await;
        pooled.map(pool::PooledSession::give_back).map_err(|error| error.while_connecting(D::NAME))
    }

    pub(super) fn watch(&self, key: &Key) -> Watch {
        self.context.watchers.watch(key.digest())
    }

    pub(super) fn local_queues(&self) -> LocalQueues {
        self.context.queues.clone()
    }

    pub(super) fn acquire(&self, request: Request) -> LockFuture<Attempt> {
        let ours = self.clone();
        Box::pin(async move {
            loop {
                match ours.claims.join(request.claim.token()) {
                    ClaimEntry::New(slot) => {
                        let (answer, answered) = oneshot::channel();
                        let task = ClaimTask::new(Arc::clone(&ours.context), request.clone(), slot);
                        tokio::spawn(task.live(answer));
                        let gone = || gone::<D>("asking for", request.claim.key());
                        return answered.await.unwrap_or_else(|_| Err(gone()));
                    }
                    // `None` if the task ended meanwhile. Then this starts a new one.
                    ClaimEntry::There(task) => {
                        if let Some(attempt) = task.request(ClaimRequest::Again).await {
                            return attempt;
                        }
                    }
                }
            }
        })
    }

    pub(super) fn renew(&self, claim: &Claim) -> LockFuture<Renew> {
        let ours = self.clone();
        let claim = claim.clone();
        Box::pin(async move {
            let Some(task) = ours.claims.find(claim.token()) else { return Ok(Renew::Lost) };
            let answered = timeout(ours.longest(), task.request(ClaimRequest::IsHeld)).await;
            let late = |_| late::<D>("renewing", claim.key(), ours.longest());
            answered.map_err(late)?.unwrap_or(Ok(Renew::Lost))
        })
    }

    pub(super) fn release(&self, claim: Claim) -> LockFuture<Released> {
        let ours = self.clone();
        Box::pin(async move {
            let Some(task) = ours.claims.find(claim.token()) else {
                return Ok(Released::NotHeld);
            };
            task.wish(Wish::Leave);
            let Ok(answered) = timeout(ours.longest(), task.request(ClaimRequest::Free)).await
            else {
                // Closing the connection releases the key, too.
                task.wish(Wish::Close);
                return Err(late::<D>("releasing", claim.key(), ours.longest()));
            };
            answered.unwrap_or(Ok(Released::NotHeld))
        })
    }

    /// How long a healthy task takes to answer at most: it may finish other requests first.
    fn longest(&self) -> Duration {
        self.context.settings.timeout * 3
    }
}

fn gone<D: Database>(what: &str, key: &Key) -> LockError {
    let message = "the task of the claim was dropped (is the runtime shutting down?)";
    SessionError::broken(LockErrorKind::Unreachable, message).during(D::NAME, what, key)
}

fn late<D: Database>(what: &str, key: &Key, longest: Duration) -> LockError {
    SessionError::late(longest).during(D::NAME, what, key)
}

impl<D: Database> Clone for Sessions<D> {
    fn clone(&self) -> Self {
        Self { claims: Arc::clone(&self.claims), context: Arc::clone(&self.context) }
    }
}

impl<D: Database> fmt::Debug for Sessions<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("pool", &self.context.pool)
            .field("settings", &self.context.settings)
            .field("claims", &self.claims.len())
            .finish()
    }
}
