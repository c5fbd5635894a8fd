//! The pool of sessions: those in use, those that are idle, and how many there may be.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{Database, SessionError, SessionSettings};
use crate::LockErrorKind;

/// The sessions of one lock.
pub(super) struct SessionPool<D: Database> {
    pub(super) database: D,
    timeout: Duration,
    /// How long an idle session can be used again. After that, the server may end it at any time.
    fresh_for: Duration,
    most: usize,
    /// Whether the tables are known to be there.
    prepared: AtomicBool,
    permits: Arc<Semaphore>,
    /// The sessions that hold nothing, the last used at the end. Held for a moment, never across an
    /// `.await`. A session is begun only when there is none here, so idle sessions and those in use
    /// together are never more than the limit.
    idle: Arc<Mutex<IdleSessions<D::Session>>>,
}

struct IdleSessions<L> {
    sessions: Vec<Idle<L>>,
    /// Whether a task ends the sessions that are idle for too long. It runs as long as there are
    /// any.
    is_swept: bool,
}

struct Idle<L> {
    session: L,
    since: Instant,
}

/// A session in use. Dropping it ends the session.
pub(super) struct PooledSession<D: Database> {
    pub(super) session: D::Session,
    /// Whether it was used before. It may have ended since.
    pub(super) is_used: bool,
    /// Whether a statement on it was interrupted. The interruption may arrive late, and hit the
    /// statement of another claim, so the session is not used again.
    pub(super) is_interrupted: bool,
    idle: Arc<Mutex<IdleSessions<D::Session>>>,
    fresh_for: Duration,
    _permit: OwnedSemaphorePermit,
}

impl<D: Database> SessionPool<D> {
    pub(super) fn new(database: D, settings: &SessionSettings) -> Self {
        Self {
            database,
            timeout: settings.timeout,
            fresh_for: settings.pause(),
            most: settings.connections,
            prepared: AtomicBool::new(false),
            permits: Arc::new(Semaphore::new(settings.connections)),
            idle: Arc::new(Mutex::new(IdleSessions { sessions: Vec::new(), is_swept: false })),
        }
    }

    /// A session to use. When all are in use, this waits for one until the instant, or for the
    /// timeout if that is longer.
    pub(super) async fn get(&self, until: Instant) -> Result<PooledSession<D>, SessionError> {
        let until = until.max(Instant::now() + self.timeout);
        let permit = timeout_at(until, Arc::clone(&self.permits).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            let message = format!("all {} connections of this lock are in use", self.most);
            return Err(SessionError::refused(LockErrorKind::NotReady, message));
        };
        let used = self.used();
        let is_used = used.is_some();
        let made = timeout(self.timeout, async {
            let mut session = match used {
                Some(session) => session,
                None => self.database.connect().await?,
            };
            if !self.prepared.load(Ordering::Acquire) {
                self.prepare(&mut session).await?;
            }
            Ok(session)
        });
        let session = made.await.unwrap_or_else(|_| Err(SessionError::late(self.timeout)))?;
        Ok(PooledSession {
            session,
            is_used,
            is_interrupted: false,
            idle: Arc::clone(&self.idle),
            fresh_for: self.fresh_for,
            _permit: permit,
        })
    }

    pub(super) async fn prepare(&self, session: &mut D::Session) -> Result<(), SessionError> {
        self.database.prepare(session).await?;
        self.prepared.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends the idle sessions: another session was broken, and they may be, too.
    pub(super) fn suspect(&self) {
        let suspects = std::mem::take(&mut lock(&self.idle).sessions);
        drop(suspects);
    }

    /// An idle session that can be used again.
    fn used(&self) -> Option<D::Session> {
        let mut idle = lock(&self.idle);
        let stale = idle.stale(self.fresh_for);
        let found = idle.sessions.pop().map(|idle| idle.session);
        drop(idle);
        // After the mutex is released, because ending a session takes time.
        drop(stale);
        found
    }
}

impl<D: Database> PooledSession<D> {
    /// Returns a session that holds nothing to the pool.
    pub(super) fn give_back(self) {
        if self.is_interrupted {
            return;
        }
        let Self { session, idle, fresh_for, .. } = self;
        let mut idle_sessions = lock(&idle);
        idle_sessions.sessions.push(Idle { session, since: Instant::now() });
        let is_swept = std::mem::replace(&mut idle_sessions.is_swept, true);
        drop(idle_sessions);
        if !is_swept {
            tokio::spawn(sweep(Arc::downgrade(&idle), fresh_for));
        }
    }
}

/// Ends the sessions that are idle for too long, until there are no idle ones.
async fn sweep<L>(idle: Weak<Mutex<IdleSessions<L>>>, fresh_for: Duration) {
    loop {
        sleep(fresh_for).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut idle_sessions = lock(&idle);
        let stale = idle_sessions.stale(fresh_for);
        idle_sessions.is_swept = !idle_sessions.sessions.is_empty();
        let is_done = !idle_sessions.is_swept;
        drop(idle_sessions);
        drop(stale);
        if is_done {
            return;
        }
    }
}

impl<L> IdleSessions<L> {
    /// Takes out the sessions that were idle for too long, which are the first ones.
    fn stale(&mut self, fresh_for: Duration) -> Vec<Idle<L>> {
        let now = Instant::now();
        let count = self.sessions.iter().take_while(|idle| now - idle.since >= fresh_for).count();
        self.sessions.drain(..count).collect()
    }
}

fn lock<L>(idle: &Mutex<IdleSessions<L>>) -> MutexGuard<'_, IdleSessions<L>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
