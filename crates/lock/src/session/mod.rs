//! Locks by sessions: a connection of its own for every claim, while it waits and while it holds.
//!
//! What a database counts per session (`GET_LOCK`, advisory locks) it grants to the same session
//! again, so two claims must never share one. A claim has a [task](claim_task::ClaimTask) of its own, with
//! the connection; all others ask it. The task ends with the claim.
//!
//! A database does not tell that it has ended a session, and may not notice for hours that a client
//! has gone. So a session is bounded from both sides: the server is told to end what it has not
//! heard of for so long, and the task, which asks it three times as often, gives the session up
//! when the last answer was to a question of so long ago, less a little. The task is first. The
//! holder has the same clock ([`Session::alive_until`](super::Session::alive_until)), so it knows
//! although the task stood still with the whole runtime.

mod claim_task;
mod claims;
mod context;
mod database;
mod error;
mod name;
mod pool;
mod settings;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether::{Key, StoreError, StoreErrorKind};
use tokio::sync::oneshot;
use tokio::time::timeout;

pub(super) use self::database::{Database, TakenName};
pub(super) use self::error::SessionError;
pub(super) use self::name::Name;
pub(super) use self::settings::SessionSettings;

use self::claim_task::ClaimTask;
use self::claims::{ClaimEntry, ClaimRequest, Claims, Wish};
use self::context::SessionContext;
use self::pool::SessionPool;
use super::{Answer, Attempt, Claim, Released, Renew, Request, Watch, Watchers};

/// A lock by the sessions of a database.
pub(super) struct Sessions<D: Database> {
    claims: Arc<Claims>,
    context: Arc<SessionContext<D>>,
}

impl<D: Database> Sessions<D> {
    pub(super) fn new(database: D, settings: SessionSettings) -> Self {
        let pool = SessionPool::new(database, &settings);
        let context = SessionContext { pool, settings, watchers: Watchers::default() };
        Self { claims: Arc::default(), context: Arc::new(context) }
    }

    /// Makes sure that the server is there and has what is needed, so that the first caller
    /// need not find out.
    pub(super) async fn prepare(&self) -> Result<(), StoreError> {
        let pooled = self.context.pool.get(tokio::time::Instant::now()).await;
        pooled
            .map(pool::PooledSession::give_back)
            .map_err(|trouble| trouble.while_connecting(D::NAME))
    }

    pub(super) fn watch(&self, key: &Key) -> Watch {
        self.context.watchers.watch(key.digest())
    }

    pub(super) fn acquire(&self, request: Request) -> Answer<Attempt> {
        let ours = self.clone();
        Box::pin(async move {
            loop {
                match ours.claims.join(request.claim.token()) {
                    ClaimEntry::New(place) => {
                        let (answer, answered) = oneshot::channel();
                        let task =
                            ClaimTask::new(Arc::clone(&ours.context), request.clone(), place);
                        tokio::spawn(task.live(answer));
                        let gone = || gone::<D>("asking for", request.claim.key());
                        return answered.await.unwrap_or_else(|_| Err(gone()));
                    }
                    // None if it has gone while we asked: then we are the first.
                    ClaimEntry::There(ask) => {
                        if let Some(attempt) = ask.of(ClaimRequest::Again).await {
                            return attempt;
                        }
                    }
                }
            }
        })
    }

    pub(super) fn renew(&self, claim: &Claim) -> Answer<Renew> {
        let (ours, claim) = (self.clone(), claim.clone());
        Box::pin(async move {
            let Some(asker) = ours.claims.find(claim.token()) else { return Ok(Renew::Lost) };
            let answered = timeout(ours.longest(), asker.of(ClaimRequest::IsHeld)).await;
            let late = |_| late::<D>("renewing", claim.key(), ours.longest());
            answered.map_err(late)?.unwrap_or(Ok(Renew::Lost))
        })
    }

    pub(super) fn release(&self, claim: Claim) -> Answer<Released> {
        let ours = self.clone();
        Box::pin(async move {
            let Some(asker) = ours.claims.find(claim.token()) else {
                return Ok(Released::NotHeld);
            };
            asker.wish(Wish::Leave);
            let Ok(answered) = timeout(ours.longest(), asker.of(ClaimRequest::Free)).await else {
                // To close the connection is what is left.
                asker.wish(Wish::Close);
                return Err(late::<D>("releasing", claim.key(), ours.longest()));
            };
            answered.unwrap_or(Ok(Released::NotHeld))
        })
    }

    /// How long a task that is well can take to answer: it may be at something else first.
    fn longest(&self) -> Duration {
        self.context.settings.timeout * 3
    }
}

fn gone<D: Database>(what: &str, key: &Key) -> StoreError {
    let said = "the task that asked was dropped (is the runtime going down?)";
    SessionError::broken(StoreErrorKind::Unreachable, said).during(D::NAME, what, key)
}

fn late<D: Database>(what: &str, key: &Key, longest: Duration) -> StoreError {
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
