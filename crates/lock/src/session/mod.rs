//! Locks by sessions: a connection of its own for every claim, while it waits and while it holds.
//!
//! A database grants a lock per session (advisory locks) to the same session again, so
//! two claims must never share one. Each claim has a [task](claim_task::ClaimTask), which has the
//! connection; all operations send their requests to that task. The task ends with the claim.
//!
//! A database does not report that it has ended a session, and may not notice for hours that a
//! client is gone. So both sides end a silent session. The server ends a session from which it has
//! received nothing for the session timeout. The task sends a request three times as often, and
//! gives the session up when its last answered request is almost as old as the timeout. So the task
//! gives up first. The holder compares with the same instant
//! ([`Session`](super::Session)), so it knows even if the task stood
//! still with the whole runtime.

mod claim_task;
mod claims;
mod database;
mod name;
pub(crate) mod options;
mod pool;
mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

pub use self::options::SessionOptions;

pub(super) use self::database::{AddressedOptions, Database, DatabaseSession, TakenName};
pub(super) use self::name::Name;
pub(super) use self::options::DatabaseAddress;
#[cfg(feature = "postgres")]
pub(super) use self::tls::client_config;
#[cfg(feature = "mysql")]
pub(super) use self::tls::install_provider;
pub(super) use self::tls::{authorities, is_of_tls, untrusted};

use self::claim_task::ClaimTask;
use self::claims::{ClaimRequest, Claims};
use self::pool::SessionPool;
use super::{Attempt, Claim, Released, Renew, Request};
use crate::{LocalQueues, LockError, LockErrorKind};

/// A lock by the sessions of a database.
pub(super) struct Sessions<D: Database> {
    /// Not shared with the tasks: they release everything when the last handle is dropped.
    claims: Arc<Claims>,
    pool: Arc<SessionPool<D>>,
    queues: LocalQueues,
}

impl<D: Database> Sessions<D> {
    pub(super) fn new(options: AddressedOptions<D>) -> Arc<Self> {
        let pool = Arc::new(SessionPool::new(options));
        Arc::new(Self { claims: Arc::default(), pool, queues: LocalQueues::default() })
    }

    /// Connects and creates missing tables, so that an error shows before the first request.
    pub(super) async fn prepare(&self) -> Result<(), LockError> {
        let pooled = self.pool.get(Instant::now()).await;
        let pooled = pooled.map_err(|error| error.during(D::Session::NAME, "connecting", None))?;
        pooled.give_back();
        Ok(())
    }

    pub(super) fn local_queues(&self) -> LocalQueues {
        self.queues.clone()
    }

    pub(super) async fn acquire(self: Arc<Self>, request: Request) -> Result<Attempt, LockError> {
        let token = request.claim.token();
        loop {
            match self.claims.join(token) {
                Err(slot) => {
                    let (answer, answered) = oneshot::channel();
                    let task = ClaimTask::new(Arc::clone(&self.pool), request.clone(), slot);
                    tokio::spawn(task.live(answer));
                    let gone = LockError::new(LockErrorKind::Unreachable, GONE);
                    return answered.await.unwrap_or_else(|_| {
                        Err(gone.during(D::Session::NAME, "asking for", Some(request.claim.key())))
                    });
                }
                // Without a grant, the task has ended or is about to. Then this starts a new one.
                Ok(task) => {
                    if let Some(Some(grant)) = task.request(ClaimRequest::Check).await {
                        return Ok(Attempt::Granted(grant));
                    }
                }
            }
        }
    }

    pub(super) async fn renew(self: Arc<Self>, claim: Claim) -> Result<Renew, LockError> {
        let Some(task) = self.claims.find(claim.token()) else { return Ok(Renew::Lost) };
        let answered = timeout(self.longest(), task.request(ClaimRequest::Check)).await;
        let is_held = answered.map_err(|_| self.late("renewing", &claim))?.flatten().is_some();
        Ok(if is_held { Renew::Held } else { Renew::Lost })
    }

    pub(super) async fn release(self: Arc<Self>, claim: Claim) -> Result<Released, LockError> {
        let Some(task) = self.claims.find(claim.token()) else { return Ok(Released::NotHeld) };
        task.leave.cancel();
        let answered = timeout(self.longest(), task.request(ClaimRequest::Free)).await;
        answered
            .unwrap_or_else(|_| {
                // Closing the connection releases the key, too.
                task.close.cancel();
                Some(Err(self.late("releasing", &claim)))
            })
            .unwrap_or(Ok(Released::NotHeld))
    }

    /// How long a healthy task takes to answer at most: it may finish other requests first.
    fn longest(&self) -> Duration {
        self.pool.options.timeout * 3
    }

    fn late(&self, what: &str, claim: &Claim) -> LockError {
        let late = LockError::late(self.longest());
        late.during(D::Session::NAME, what, Some(claim.key()))
    }
}

/// The face of a lock by the sessions of a database.
macro_rules! by_sessions {
    ($lock:ident, $options:ident, $database:ident) => {
        impl $lock {
            /// Connects. Creates what is missing of the tables or the sequence.
            ///
            /// # Errors
            /// If an option is wrong. If the server cannot be reached or refuses. If a table or the sequence is missing and
            /// the user may not create it: the message has the statement.
            pub async fn connect(options: $options) -> Result<Self, $crate::LockError> {
                let lock = Self::connect_lazily(options)?;
                lock.0.prepare().await?;
                Ok(lock)
            }

            /// A lock that connects when it is first used, for services that start before their
            /// database.
            ///
            /// # Errors
            /// If an option is wrong: the first one.
            pub fn connect_lazily(options: $options) -> Result<Self, bellwether::ConfigError> {
                options.wrong.result()?;
                Ok(Self(Sessions::<$database>::new(options)))
            }
        }

        impl $crate::Lock for $lock {
            fn acquire(&self, request: $crate::Request) -> $crate::LockFuture<$crate::Attempt> {
                Box::pin(self.0.clone().acquire(request))
            }

            fn renew(
                &self,
                claim: &bellwether::store::Claim,
                _: std::time::Duration,
            ) -> $crate::LockFuture<bellwether::store::Renew> {
                Box::pin(self.0.clone().renew(claim.clone()))
            }

            fn release(
                &self,
                claim: bellwether::store::Claim,
            ) -> $crate::LockFuture<$crate::Released> {
                Box::pin(self.0.clone().release(claim))
            }

            fn local_queues(&self) -> $crate::LocalQueues {
                self.0.local_queues()
            }
        }

        impl $crate::Fenced for $lock {}
    };
}

pub(super) use by_sessions;

impl<D: Database> fmt::Debug for Sessions<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("options", &self.pool.options)
            .field("claims", &self.claims.len())
            .finish()
    }
}

const GONE: &str = "the task of the claim was dropped (is the runtime shutting down?)";
