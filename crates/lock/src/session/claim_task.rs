//! The task of a claim: it has a session for the claim, and ends with it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::claims::{ClaimRequest, ClaimSlot};
use super::pool::{PooledSession, SessionPool};
use super::{Database, DatabaseSession, Name, TakenName};
use crate::{Attempt, Busy, Grant, LockError, Released, Request, Session};

/// The task of one claim.
pub(super) struct ClaimTask<D: Database> {
    pool: Arc<SessionPool<D>>,
    request: Request,
    name: Name,
    slot: ClaimSlot,
}

/// A name that is held, by a session.
struct HeldName<D: Database> {
    pooled: PooledSession<D>,
    fence: u64,
    /// When the last answered request was sent.
    asked: Instant,
    /// When the server may end the session, unless it answers another request. Dropping it says that
    /// the session has ended.
    until: watch::Sender<Option<Instant>>,
}

type Answering = oneshot::Sender<Result<Attempt, LockError>>;

impl<D: Database> ClaimTask<D> {
    pub(super) fn new(pool: Arc<SessionPool<D>>, request: Request, slot: ClaimSlot) -> Self {
        let name = Name::of(request.claim.key(), &pool.options.namespace);
        Self { pool, request, name, slot }
    }

    /// Takes the name, answers, and keeps the session until the name is released or lost.
    pub(super) async fn live(self, answer: Answering) {
        let close = self.slot.close.clone();
        close.run_until_cancelled(self.work(answer)).await;
    }

    async fn work(self, mut answer: Answering) {
        let hold = match self.take(&mut answer).await {
            Err(error) if self.is_wanted() => {
                let key = self.request.claim.key();
                // The caller may be gone.
                let _ = answer.send(Err(error.during(D::Session::NAME, "asking for", Some(key))));
                return;
            }
            // A wait that was interrupted ends with an error, too.
            hold => hold.ok().flatten(),
        };
        match hold {
            Some(hold) if self.is_wanted() => match answer.send(Ok(Attempt::Granted(hold.grant())))
            {
                Ok(()) => self.keep(hold).await,
                Err(_) => _ = self.free(hold).await,
            },
            hold => {
                if let Some(hold) = hold {
                    let _ = self.free(hold).await;
                }
                let _ = answer.send(Ok(Attempt::Busy(Busy::new())));
            }
        }
    }

    /// Whether the wait has not been ended.
    fn is_wanted(&self) -> bool {
        !self.slot.leave.is_cancelled()
    }

    /// Takes the name, unless the caller goes.
    async fn take(&self, answer: &mut Answering) -> Result<Option<HeldName<D>>, LockError> {
        let until = Instant::now() + self.request.patience.min(LONGEST_WAIT);
        loop {
            let pooled = tokio::select! {
                biased;
                () = self.is_left(answer) => return Ok(None),
                pooled = self.pool.get(until) => pooled?,
            };
            let is_used = pooled.is_used;
            match self.take_by(pooled, until, answer).await {
                // It was idle for too long, and so may all others be. A new session shows whether
                // the server is there.
                Err(error) if is_used && error.ends_session() && !error.was_busy() => {
                    self.pool.suspect();
                }
                taken => return taken,
            }
        }
    }

    async fn take_by(
        &self,
        mut pooled: PooledSession<D>,
        until: Instant,
        answer: &mut Answering,
    ) -> Result<Option<HeldName<D>>, LockError> {
        let pool = &self.pool;
        let mut taken = self.ask(&mut pooled, until, answer).await;
        if taken.as_ref().is_err_and(D::Session::is_unprepared) {
            // The tables were removed after `prepare`. The session may hold the name already.
            self.in_time(async {
                pool.database.free(&mut pooled.session, &self.name).await?;
                pool.prepare(&mut pooled.session).await
            })
            .await?;
            taken = self.ask(&mut pooled, until, answer).await;
        }
        let Some(TakenName { fence, asked }) = taken? else {
            pooled.give_back();
            return Ok(None);
        };
        let until = watch::Sender::new(Some(self.certain_after(asked)));
        Ok(Some(HeldName { pooled, fence, asked, until }))
    }

    /// Takes the name if it is free, and else waits for it. So an error of the wait says that
    /// another claim had the name. When the caller goes, the statement that waits is interrupted.
    /// Other statements end soon without that.
    async fn ask(
        &self,
        pooled: &mut PooledSession<D>,
        until: Instant,
        answer: &mut Answering,
    ) -> Result<Option<TakenName>, LockError> {
        let SessionPool { database, options, .. } = &*self.pool;
        let taken = self.in_time(database.take(&mut pooled.session, &self.name)).await?;
        let patience = until.saturating_duration_since(Instant::now());
        let is_left = self.is_left(answer).now_or_never().is_some();
        if taken.is_some() || patience.is_zero() || is_left {
            return Ok(taken);
        }
        let interrupt = pooled.session.interrupt(options);
        let longest = patience + options.timeout;
        let waiting = database.wait(&mut pooled.session, &self.name, patience);
        let mut waiting = pin!(timeout(longest, waiting));
        let waited = tokio::select! {
            waited = &mut waiting => waited,
            () = self.is_left(answer) => {
                pooled.is_interrupted = true;
                if let Err(error) = self.in_time(interrupt).await {
                    tracing::debug!(target: "bellwether::lock", %error, "a wait in a database was not interrupted");
                }
                timeout(options.timeout, waiting).await.unwrap_or_else(Err)
            }
        };
        let waited = waited.unwrap_or_else(|_| Err(LockError::late(longest)));
        waited.map_err(LockError::while_busy)
    }

    /// Waits until the caller is gone, or tells the task to stop.
    async fn is_left(&self, answer: &mut Answering) {
        tokio::select! {
            () = answer.closed() => {}
            () = self.slot.leave.cancelled() => {}
        }
    }

    async fn keep(mut self, mut hold: HeldName<D>) {
        let mut session_ended = hold.pooled.session.ended();
        let pause = self.pool.options.pause().min(D::Session::LONGEST_PAUSE);
        let mut is_held = true;
        while is_held {
            let ask = tokio::select! {
                biased;
                () = &mut session_ended => break,
                ask = self.slot.asks.recv() => ask,
                () = sleep_until(hold.asked + pause) => {
                    is_held = self.is_held(&mut hold).await;
                    continue;
                }
            };
            match ask {
                Some(ClaimRequest::Check(answer)) => {
                    is_held = self.is_held(&mut hold).await;
                    let _ = answer.send(is_held.then(|| hold.grant()));
                }
                Some(ClaimRequest::Free(answer)) => {
                    let until = hold.until.clone();
                    let freed = self.free(hold).await;
                    // Dropped first: the caller may ask again by the same claim.
                    drop(self);
                    let _ = answer.send(freed);
                    // A release is no loss, and must not look like the end of the session.
                    until.send_replace(None);
                    return until.closed().await;
                }
                // All handles were dropped, so no request can come.
                None => {
                    let _ = self.free(hold).await;
                    return;
                }
            }
        }
    }

    /// Whether the name is held for certain. Without an answer before the session may have ended, it is
    /// not, and the holder knows so by the clock.
    async fn is_held(&self, hold: &mut HeldName<D>) -> bool {
        let (asked, until) = (Instant::now(), self.certain_after(hold.asked));
        let holds = self.pool.database.holds(&mut hold.pooled.session);
        let is_held = matches!(timeout_at(until, holds).await, Ok(Ok(true)));
        let is_certain = is_held && Instant::now() < until;
        if is_certain {
            hold.asked = asked;
            hold.until.send_replace(Some(self.certain_after(asked)));
        }
        is_certain
    }

    /// Until when the session exists for certain after a request that was answered.
    fn certain_after(&self, asked: Instant) -> Instant {
        asked + self.pool.options.certain()
    }

    /// Releases the name. When this returns, the server has confirmed it, or the session has ended.
    async fn free(&self, hold: HeldName<D>) -> Result<Released, LockError> {
        let mut pooled = hold.pooled;
        let freed = self.pool.database.free(&mut pooled.session, &self.name);
        let key = self.request.claim.key();
        match self.in_time(freed).await {
            Ok(true) => {
                pooled.give_back();
                Ok(Released::Freed)
            }
            Ok(false) => Ok(Released::NotHeld),
            // The session has ended, and released what it held.
            Err(error) if error.ends_session() => Ok(Released::NotHeld),
            Err(error) => Err(error.during(D::Session::NAME, "releasing", Some(key))),
        }
    }

    /// The answer to a request, or an error after the timeout.
    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, LockError> {
        let limit = self.pool.options.timeout;
        timeout(limit, answer).await.unwrap_or_else(|_| Err(LockError::late(limit)))
    }
}

impl<D: Database> HeldName<D> {
    fn grant(&self) -> Grant {
        Grant::by_session(Session::new(self.until.subscribe())).fenced(self.fence)
    }
}

/// The longest wait of one statement, below the largest timeout of every server. A caller with more
/// patience asks again.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
