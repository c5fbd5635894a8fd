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

/// The face of a lock by the sessions of a database.
macro_rules! by_sessions {
    ($lock:ident, $options:ident, $database:ident) => {
        impl $lock {
            /// Connects. Creates what is missing of the tables or the sequence.
            ///
            /// # Errors
            /// If the server cannot be reached or refuses. If a table or the sequence is missing and
            /// the user may not create it: the message has the statement.
            pub async fn connect(options: $options) -> Result<Self, $crate::LockError> {
                let lock = Self::connect_lazily(options);
                lock.0.prepare().await?;
                Ok(lock)
            }

            /// A lock that connects when it is first used, for services that start before their
            /// database.
            pub fn connect_lazily(options: $options) -> Self {
                let settings = options.settings.clone();
                Self(Sessions::new($database::new(options), settings))
            }
        }

        impl $crate::Lock for $lock {
            fn watch(&self, key: &bellwether::Key) -> bellwether::store::Watch {
                self.0.watch(key)
            }

            fn acquire(&self, request: $crate::Request) -> $crate::LockFuture<$crate::Attempt> {
                self.0.acquire(request)
            }

            fn renew(
                &self,
                claim: &bellwether::store::Claim,
                _: std::time::Duration,
            ) -> $crate::LockFuture<bellwether::store::Renew> {
                self.0.renew(claim)
            }

            fn release(
                &self,
                claim: bellwether::store::Claim,
            ) -> $crate::LockFuture<$crate::Released> {
                self.0.release(claim)
            }

            fn local_queues(&self) -> $crate::LocalQueues {
                self.0.local_queues()
            }
        }

        impl $crate::Fenced for $lock {}
    };
}

pub(super) use by_sessions;

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
            .field("database", &self.context.pool.database)
            .field("settings", &self.context.settings)
            .field("claims", &self.claims.len())
            .finish()
    }
}
