//! The task of a claim: it has a session for the claim, and ends with it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::claims::{ClaimRequest, ClaimSlot, Wish};
use super::context::SessionContext;
use super::pool::PooledSession;
use super::{Database, Name, SessionError, TakenName};
use crate::{Attempt, Busy, Grant, LockError, Released, Renew, Request, Session};

/// The task of one claim.
pub(super) struct ClaimTask<D: Database> {
    context: Arc<SessionContext<D>>,
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
}

/// The state of a session, as its holder sees it.
struct SessionLife {
    ended: watch::Sender<bool>,
    /// When the server may end the session, unless it answers another request.
    until: watch::Sender<Option<Instant>>,
}

/// What the task of a holder does next.
enum ClaimTaskEvent {
    Answer(ClaimRequest),
    Ping,
    /// All handles were dropped, so no request can come.
    Leave,
    SessionEnded,
}

type Answering = oneshot::Sender<Result<Attempt, LockError>>;

impl<D: Database> ClaimTask<D> {
    pub(super) fn new(context: Arc<SessionContext<D>>, request: Request, slot: ClaimSlot) -> Self {
        let name = Name::of(request.claim.key(), &context.settings.namespace);
        Self { context, request, name, slot }
    }

    /// Takes the name, answers, and keeps the session until the name is released or lost.
    pub(super) async fn live(self, answer: Answering) {
        let mut wishes = self.slot.wishes();
        tokio::select! {
            () = self.work(answer) => {}
            Ok(_) = wishes.wait_for(|wish| *wish == Wish::Close) => {}
        }
    }

    async fn work(self, mut answer: Answering) {
        let hold = match self.take(&mut answer).await {
            Ok(hold) => hold,
            // A wait that was interrupted ends with an error, too.
            Err(_) if !self.is_wanted() => None,
            Err(error) => {
                let key = self.request.claim.key();
                // The caller may be gone.
                let _ = answer.send(Err(error.during(D::NAME, "asking for", key)));
                return;
            }
        };
        let Some(hold) = hold else {
            let _ = answer.send(Ok(Attempt::Busy(Busy::new())));
            return;
        };
        let life = SessionLife::new(self.certain_until(&hold));
        if !self.is_wanted() {
            let _ = self.free(hold).await;
            let _ = answer.send(Ok(Attempt::Busy(Busy::new())));
        } else if answer.send(Ok(life.granted(&hold))).is_ok() {
            self.keep(hold, life).await;
        } else {
            let _ = self.free(hold).await;
        }
    }

    /// Whether the wait has not been ended.
    fn is_wanted(&self) -> bool {
        *self.slot.wishes().borrow() == Wish::None
    }

    /// Takes the name, unless the caller goes.
    async fn take(&self, answer: &mut Answering) -> Result<Option<HeldName<D>>, SessionError> {
        let until = Instant::now() + self.request.patience.min(LONGEST_WAIT);
        loop {
            let pooled = tokio::select! {
                biased;
                () = self.is_left(answer) => return Ok(None),
                pooled = self.context.pool.get(until) => pooled?,
            };
            let is_used = pooled.is_used;
            match self.take_by(pooled, until, answer).await {
                // It was idle for too long, and so may all others be. A new session shows whether
                // the server is there.
                Err(error) if is_used && error.is_stale() => {
                    self.context.pool.suspect();
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
    ) -> Result<Option<HeldName<D>>, SessionError> {
        let pool = &self.context.pool;
        let mut taken = self.ask(&mut pooled, until, answer).await;
        if taken.as_ref().is_err_and(SessionError::is_unprepared) {
            // The tables were removed after `prepare`. The session may hold the name already.
            let limit = self.context.settings.timeout;
            let again = async {
                pool.database.free(&mut pooled.session, &self.name).await?;
                pool.prepare(&mut pooled.session).await
            };
            timeout(limit, again).await.unwrap_or_else(|_| Err(SessionError::late(limit)))?;
            taken = self.ask(&mut pooled, until, answer).await;
        }
        let Some(TakenName { fence, asked }) = taken? else {
            pooled.give_back();
            return Ok(None);
        };
        Ok(Some(HeldName { pooled, fence, asked }))
    }

    /// Takes the name if it is free, and else waits for it. So an error of the wait says that
    /// another claim had the name. When the caller goes, the statement that waits is interrupted.
    /// Other statements end soon without that.
    async fn ask(
        &self,
        pooled: &mut PooledSession<D>,
        until: Instant,
        answer: &mut Answering,
    ) -> Result<Option<TakenName>, SessionError> {
        let database = &self.context.pool.database;
        let limit = self.context.settings.timeout;
        let taken = timeout(limit, database.take(&mut pooled.session, &self.name)).await;
        let taken = taken.unwrap_or_else(|_| Err(SessionError::late(limit)))?;
        let patience = until.saturating_duration_since(Instant::now());
        let is_left = self.is_left(answer).now_or_never().is_some();
        if taken.is_some() || patience.is_zero() || is_left {
            return Ok(taken);
        }
        let interrupt = database.interrupt_of(&pooled.session);
        let longest = patience + limit;
        let waiting = database.wait(&mut pooled.session, &self.name, patience);
        let mut waiting = std::pin::pin!(timeout(longest, waiting));
        let waited = tokio::select! {
            waited = &mut waiting => waited,
            () = self.is_left(answer) => {
                pooled.is_interrupted = true;
                let _ = timeout(limit, database.interrupt(interrupt)).await;
                timeout(limit, waiting).await.unwrap_or_else(Err)
            }
        };
        let waited = waited.unwrap_or_else(|_| Err(SessionError::late(longest)));
        waited.map_err(SessionError::while_busy)
    }

    /// Waits until the caller is gone, or tells the task to stop.
    async fn is_left(&self, answer: &mut Answering) {
        let mut wishes = self.slot.wishes();
        tokio::select! {
            () = answer.closed() => {}
            Ok(_) = wishes.wait_for(|wish| *wish != Wish::None) => {}
        }
    }

    async fn keep(mut self, mut hold: HeldName<D>, life: SessionLife) {
        let mut session_ended = D::ended(&hold.pooled.session);
        loop {
            let due = hold.asked + self.context.settings.pause();
            let next = tokio::select! {
                biased;
                () = &mut session_ended => ClaimTaskEvent::SessionEnded,
                ask = self.slot.asks.recv() => ask.map_or(ClaimTaskEvent::Leave, ClaimTaskEvent::Answer),
                () = sleep_until(due) => ClaimTaskEvent::Ping,
            };
            let is_held = match next {
                ClaimTaskEvent::Answer(ClaimRequest::Free(answer)) => {
                    let freed = self.free(hold).await;
                    // Dropped first: the caller may ask again by the same claim.
                    drop(self);
                    let _ = answer.send(freed);
                    return life.released().await;
                }
                ClaimTaskEvent::Answer(ClaimRequest::Again(answer)) => {
                    let is_held = self.is_held(&mut hold, &life).await;
                    // If the hold is lost, this sends nothing, and the caller starts a new task.
                    let _ = is_held.then(|| answer.send(Ok(life.granted(&hold))));
                    is_held
                }
                ClaimTaskEvent::Answer(ClaimRequest::IsHeld(answer)) => {
                    let is_held = self.is_held(&mut hold, &life).await;
                    let _ = answer.send(Ok(if is_held { Renew::Held } else { Renew::Lost }));
                    is_held
                }
                ClaimTaskEvent::Ping => self.ping(&mut hold, &life).await,
                ClaimTaskEvent::Leave => {
                    let _ = self.free(hold).await;
                    return;
                }
                ClaimTaskEvent::SessionEnded => false,
            };
            if !is_held {
                life.ended.send_replace(true);
                drop(hold);
                self.context.watchers.tell(&self.request.claim.key().digest());
                return;
            }
        }
    }

    /// Whether the name is held for certain. Without an answer before the session may have ended,
    /// it is not.
    async fn is_held(&self, hold: &mut HeldName<D>, life: &SessionLife) -> bool {
        let asked = Instant::now();
        let until = self.certain_until(hold);
        let holds = self.context.pool.database.holds(&mut hold.pooled.session, &self.name);
        let is_held = matches!(timeout_at(until, holds).await, Ok(Ok(true)));
        is_held && self.was_answered(hold, life, asked)
    }

    /// Keeps the session alive. Returns whether it is.
    async fn ping(&self, hold: &mut HeldName<D>, life: &SessionLife) -> bool {
        let asked = Instant::now();
        let until = self.certain_until(hold);
        let ping = self.context.pool.database.ping(&mut hold.pooled.session);
        let is_there = matches!(timeout_at(until, ping).await, Ok(Ok(())));
        is_there && self.was_answered(hold, life, asked)
    }

    /// Notes that a request was answered. Returns false if the answer is too late: the session may
    /// have ended, and the holder knows so by the clock.
    fn was_answered(&self, hold: &mut HeldName<D>, life: &SessionLife, asked: Instant) -> bool {
        let is_in_time = Instant::now() < self.certain_until(hold);
        if is_in_time {
            hold.asked = asked;
            life.until.send_replace(Some(self.certain_until(hold)));
        }
        is_in_time
    }

    fn certain_until(&self, hold: &HeldName<D>) -> Instant {
        hold.asked + self.context.settings.certain()
    }

    /// Releases the name. When this returns, the server has confirmed it, or the session has ended.
    async fn free(&self, hold: HeldName<D>) -> Result<Released, LockError> {
        let mut pooled = hold.pooled;
        let limit = self.context.settings.timeout;
        let freed = self.context.pool.database.free(&mut pooled.session, &self.name);
        let freed = timeout(limit, freed).await.unwrap_or_else(|_| Err(SessionError::late(limit)));
        let key = self.request.claim.key();
        let released = match freed {
            Ok(true) => {
                pooled.give_back();
                Ok(Released::Freed)
            }
            Ok(false) => Ok(Released::NotHeld),
            // The session has ended, and released what it held.
            Err(error) if error.is_broken() && !error.is_late() => Ok(Released::NotHeld),
            Err(error) => Err(error.during(D::NAME, "releasing", key)),
        };
        self.context.watchers.tell(&key.digest());
        released
    }
}

impl SessionLife {
    fn new(until: Instant) -> Self {
        Self { ended: watch::Sender::new(false), until: watch::Sender::new(Some(until)) }
    }

    fn granted<D: Database>(&self, hold: &HeldName<D>) -> Attempt {
        let session = Session::new(self.ended.subscribe()).alive_until(self.until.subscribe());
        Attempt::Granted(Grant::by_session(session).fenced(hold.fence))
    }

    /// Keeps the senders until all receivers are gone: a release is no loss, and must not look like
    /// the end of the session.
    async fn released(self) {
        self.until.send_replace(None);
        self.ended.closed().await;
    }
}

/// The longest wait of one statement, below the largest timeout of every server. A caller with more
/// patience asks again.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
