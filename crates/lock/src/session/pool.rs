//! The pool of sessions: those in use, those that are idle, and how many there may be.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::{mem, time::Duration};

use bellwether::adapter::locked;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::database::AddressedOptions;
use super::{Database, DatabaseSession, SessionError};
use crate::LockErrorKind;

/// The sessions of one lock.
pub(super) struct SessionPool<D: Database> {
    pub(super) database: D,
    pub(super) options: AddressedOptions<D>,
    /// Whether the tables are known to be there.
    prepared: AtomicBool,
    permits: Arc<Semaphore>,
    /// The sessions that hold nothing. Held for a moment, never across an `.await`. A session is begun
    /// only when there is none here, so idle sessions and those in use together are never more than the
    /// limit.
    idle: Mutex<IdleSessions<D::Session>>,
}

struct IdleSessions<L> {
    /// Each with the instant since which it is idle. The last used is at the end.
    sessions: Vec<(Instant, L)>,
    /// Whether a task ends the sessions that are idle for too long. It runs as long as there are
    /// any.
    is_swept: bool,
}

/// A session in use. Dropping it ends the session.
pub(super) struct PooledSession<D: Database> {
    pub(super) session: D::Session,
    /// Whether it was used before. It may have ended since.
    pub(super) is_used: bool,
    /// Whether a statement on it was interrupted. The interruption may arrive late, and hit the
    /// statement of another claim, so the session is not used again.
    pub(super) is_interrupted: bool,
    pool: Arc<SessionPool<D>>,
    _permit: OwnedSemaphorePermit,
}

impl<D: Database> SessionPool<D> {
    pub(super) fn new(options: AddressedOptions<D>) -> Self {
        Self {
            database: D::new(&options),
            permits: Arc::new(Semaphore::new(options.connections)),
            options,
            prepared: AtomicBool::new(false),
            idle: Mutex::new(IdleSessions { sessions: Vec::new(), is_swept: false }),
        }
    }

    /// A session to use. When all are in use, this waits for one until the instant, or for the
    /// timeout if that is longer.
    pub(super) async fn get(
        self: &Arc<Self>,
        until: Instant,
    ) -> Result<PooledSession<D>, SessionError> {
        let limit = self.options.timeout;
        let until = until.max(Instant::now() + limit);
        let permit = timeout_at(until, Arc::clone(&self.permits).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            let most = self.options.connections;
            let message = format!("all {most} connections of this lock are in use");
            return Err(SessionError::refused(LockErrorKind::NotReady, message));
        };
        let used = self.used();
        let is_used = used.is_some();
        let made = timeout(limit, async {
            let mut session = match used {
                Some(session) => session,
                None => D::Session::open(&self.options).await?,
            };
            if !self.prepared.load(Ordering::Acquire) {
                self.prepare(&mut session).await?;
            }
            Ok(session)
        });
        let session = made.await.unwrap_or_else(|_| Err(SessionError::late(limit)))?;
        let pool = Arc::clone(self);
        Ok(PooledSession { session, is_used, is_interrupted: false, pool, _permit: permit })
    }

    pub(super) async fn prepare(&self, session: &mut D::Session) -> Result<(), SessionError> {
        self.database.prepare(session).await?;
        self.prepared.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends the idle sessions: another session was broken, and they may be, too.
    pub(super) fn suspect(&self) {
        let suspects = mem::take(&mut locked(&self.idle).sessions);
        drop(suspects);
    }

    /// An idle session that can be used again.
    fn used(&self) -> Option<D::Session> {
        let mut idle = locked(&self.idle);
        let stale = idle.stale(self.fresh_for());
        let found = idle.sessions.pop().map(|(_, session)| session);
        drop(idle);
        // After the mutex is released, because ending a session takes time.
        drop(stale);
        found
    }

    /// How long an idle session can be used again. After that, the server may end it at any time.
    fn fresh_for(&self) -> Duration {
        self.options.pause()
    }
}

impl<D: Database> PooledSession<D> {
    /// Returns a session that holds nothing to the pool.
    pub(super) fn give_back(self) {
        if self.is_interrupted {
            return;
        }
        let Self { session, pool, .. } = self;
        let mut idle = locked(&pool.idle);
        idle.sessions.push((Instant::now(), session));
        let is_swept = mem::replace(&mut idle.is_swept, true);
        drop(idle);
        if is_swept {
            return;
        }
        let fresh_for = pool.fresh_for();
        let pool = Arc::downgrade(&pool);
        // Ends the sessions that are idle for too long, until there are no idle ones.
        tokio::spawn(async move {
            let mut is_swept = true;
            while is_swept {
                sleep(fresh_for).await;
                let Some(pool) = pool.upgrade() else { return };
                let mut idle = locked(&pool.idle);
                let stale = idle.stale(fresh_for);
                is_swept = !idle.sessions.is_empty();
                idle.is_swept = is_swept;
                drop(idle);
                drop(stale);
            }
        });
    }
}

impl<L> IdleSessions<L> {
    /// Takes out the sessions that were idle for too long, which are the first ones.
    fn stale(&mut self, fresh_for: Duration) -> Vec<(Instant, L)> {
        let now = Instant::now();
        let count = self.sessions.iter().take_while(|(since, _)| now - *since >= fresh_for).count();
        self.sessions.drain(..count).collect()
    }
}
