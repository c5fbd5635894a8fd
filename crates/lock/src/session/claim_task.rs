//! The task of a claim: it has a session for the claim, and ends with it.

use std::sync::Arc;
use std::time::Duration;

use bellwether::StoreError;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::claims::{ClaimRequest, ClaimSlot, Wish};
use super::context::SessionContext;
use super::pool::PooledSession;
use super::{Database, Name, SessionError, TakenName};
use crate::{Attempt, Busy, Grant, Released, Renew, Request, Session};

/// The task of one claim.
pub(super) struct ClaimTask<D: Database> {
    context: Arc<SessionContext<D>>,
    request: Request,
    name: Name,
    place: ClaimSlot,
}

/// A name that is held, by a session.
struct HeldName<D: Database> {
    pooled: PooledSession<D>,
    fence: u64,
    /// When the last question was sent that was answered.
    asked: Instant,
}

/// What a holder is told of its session.
struct Life {
    ended: watch::Sender<bool>,
    /// When the server may have ended it, if nothing more is answered.
    until: watch::Sender<Option<Instant>>,
}

/// What a task that holds is to do next.
enum TaskEvent {
    Answer(ClaimRequest),
    Ping,
    /// No handle is left that could ask for anything.
    Leave,
    Mourn,
}

type Answering = oneshot::Sender<Result<Attempt, StoreError>>;

impl<D: Database> ClaimTask<D> {
    pub(super) fn new(context: Arc<SessionContext<D>>, request: Request, place: ClaimSlot) -> Self {
        let name = Name::of(request.claim.key(), &context.settings.namespace);
        Self { context, request, name, place }
    }

    /// Asks, answers, and keeps what was granted until it is given up or lost.
    pub(super) async fn live(self, answer: Answering) {
        let mut wishes = self.place.wishes();
        tokio::select! {
            () = self.work(answer) => {}
            Ok(_) = wishes.wait_for(|wish| *wish == Wish::Close) => {}
        }
    }

    async fn work(self, mut answer: Answering) {
        let hold = match self.take(&mut answer).await {
            Ok(hold) => hold,
            // A wait that was interrupted ends in trouble, too.
            Err(_) if !self.is_wanted() => None,
            Err(trouble) => {
                let key = self.request.claim.key();
                // The caller may have gone.
                let _ = answer.send(Err(trouble.during(D::NAME, "asking for", key)));
                return;
            }
        };
        let Some(hold) = hold else {
            let _ = answer.send(Ok(Attempt::Busy(Busy::new())));
            return;
        };
        let life = Life::new(self.certain_until(&hold));
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
        *self.place.wishes().borrow() == Wish::None
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
                // It was left for too long, as may be all the others: a new one will tell.
                Err(trouble) if is_used && trouble.is_broken() && !trouble.is_late() => {
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
            // The tables have gone since they were looked for. The name may be ours already.
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

    /// Asks once. A question that waits is interrupted when the caller goes. Any other one is soon
    /// over by itself.
    async fn ask(
        &self,
        pooled: &mut PooledSession<D>,
        until: Instant,
        answer: &mut Answering,
    ) -> Result<Option<TakenName>, SessionError> {
        let (database, limit) = (&self.context.pool.database, self.context.settings.timeout);
        let patience = until.saturating_duration_since(Instant::now());
        let interrupt = database.interrupt_of(&pooled.session);
        let taking = database.take(&mut pooled.session, &self.name, patience);
        let mut taking = std::pin::pin!(timeout(patience + limit, taking));
        let taken = tokio::select! {
            taken = &mut taking => taken,
            () = self.is_left(answer) => {
                if !patience.is_zero() {
                    pooled.is_interrupted = true;
                    let _ = timeout(limit, database.interrupt(interrupt)).await;
                }
                timeout(limit, taking).await.unwrap_or_else(Err)
            }
        };
        taken.unwrap_or_else(|_| Err(SessionError::late(patience + limit)))
    }

    /// Waits until the caller has gone.
    async fn is_left(&self, answer: &mut Answering) {
        let mut wishes = self.place.wishes();
        tokio::select! {
            () = answer.closed() => {}
            Ok(_) = wishes.wait_for(|wish| *wish != Wish::None) => {}
        }
    }

    async fn keep(mut self, mut hold: HeldName<D>, life: Life) {
        let mut session_ended = D::ended(&hold.pooled.session);
        loop {
            let due = hold.asked + self.context.settings.pause();
            let next = tokio::select! {
                biased;
                () = &mut session_ended => TaskEvent::Mourn,
                ask = self.place.asks.recv() => ask.map_or(TaskEvent::Leave, TaskEvent::Answer),
                () = sleep_until(due) => TaskEvent::Ping,
            };
            let is_held = match next {
                TaskEvent::Answer(ClaimRequest::Free(answer)) => {
                    let freed = self.free(hold).await;
                    // A caller that hears of it may ask again by the same claim.
                    drop(self);
                    let _ = answer.send(freed);
                    return life.rest().await;
                }
                TaskEvent::Answer(ClaimRequest::Again(answer)) => {
                    let is_held = self.is_held(&mut hold, &life).await;
                    // If it is lost, a caller that asks again begins afresh.
                    let _ = is_held.then(|| answer.send(Ok(life.granted(&hold))));
                    is_held
                }
                TaskEvent::Answer(ClaimRequest::IsHeld(answer)) => {
                    let is_held = self.is_held(&mut hold, &life).await;
                    let _ = answer.send(Ok(if is_held { Renew::Held } else { Renew::Lost }));
                    is_held
                }
                TaskEvent::Ping => self.ping(&mut hold, &life).await,
                TaskEvent::Leave => {
                    let _ = self.free(hold).await;
                    return;
                }
                TaskEvent::Mourn => false,
            };
            if !is_held {
                life.ended.send_replace(true);
                drop(hold);
                self.context.watchers.tell(&self.request.claim.key().digest());
                return;
            }
        }
    }

    /// Whether it is held beyond doubt. No answer before the session may have ended is a no.
    async fn is_held(&self, hold: &mut HeldName<D>, life: &Life) -> bool {
        let (asked, until) = (Instant::now(), self.certain_until(hold));
        let holds = self.context.pool.database.holds(&mut hold.pooled.session, &self.name);
        let is_held = matches!(timeout_at(until, holds).await, Ok(Ok(true)));
        is_held && self.was_heard(hold, life, asked)
    }

    /// Keeps the session alive, if it is.
    async fn ping(&self, hold: &mut HeldName<D>, life: &Life) -> bool {
        let (asked, until) = (Instant::now(), self.certain_until(hold));
        let ping = self.context.pool.database.ping(&mut hold.pooled.session);
        let is_there = matches!(timeout_at(until, ping).await, Ok(Ok(())));
        is_there && self.was_heard(hold, life, asked)
    }

    /// A question of then was answered. That comes too late if the session may have ended meanwhile:
    /// the holder has been told so by the clock.
    fn was_heard(&self, hold: &mut HeldName<D>, life: &Life, asked: Instant) -> bool {
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

    /// Gives the name up. By the time this answers, the server has said so or the session has been
    /// ended.
    async fn free(&self, hold: HeldName<D>) -> Result<Released, StoreError> {
        let (mut pooled, limit) = (hold.pooled, self.context.settings.timeout);
        let freed = self.context.pool.database.free(&mut pooled.session, &self.name);
        let freed = timeout(limit, freed).await.unwrap_or_else(|_| Err(SessionError::late(limit)));
        let key = self.request.claim.key();
        let released = match freed {
            Ok(true) => {
                pooled.give_back();
                Ok(Released::Freed)
            }
            Ok(false) => Ok(Released::NotHeld),
            // The session has gone, and what it held with it.
            Err(trouble) if trouble.is_broken() && !trouble.is_late() => Ok(Released::NotHeld),
            Err(trouble) => Err(trouble.during(D::NAME, "releasing", key)),
        };
        self.context.watchers.tell(&key.digest());
        released
    }
}

impl Life {
    fn new(until: Instant) -> Self {
        Self { ended: watch::Sender::new(false), until: watch::Sender::new(Some(until)) }
    }

    fn granted<D: Database>(&self, hold: &HeldName<D>) -> Attempt {
        let session = Session::new(self.ended.subscribe()).alive_until(self.until.subscribe());
        Attempt::Granted(Grant::by_session(session).fenced(hold.fence))
    }

    /// A release is no loss, and must not look like one to a session that is still listened to.
    async fn rest(self) {
        self.until.send_replace(None);
        self.ended.closed().await;
    }
}

/// A caller with more patience asks again. It is less than what any server takes for a timeout.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
