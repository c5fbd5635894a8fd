//! The pool of sessions: those in use, those that are idle, and how many there may be.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bellwether::adapter::locked;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::database::AddressedOptions;
use super::{Database, DatabaseSession};
use crate::{LockError, LockErrorKind};

/// The sessions of one lock.
pub(super) struct SessionPool<D: Database> {
    pub(super) database: D,
    pub(super) options: AddressedOptions<D>,
    /// Whether the tables are known to be there.
    prepared: AtomicBool,
    permits: Arc<Semaphore>,
    /// The sessions that hold nothing, each with the instant since which it is idle; the last used is at
    /// the end. Held for a moment, never across an `.await`. A session is begun only when there is none
    /// here, so idle sessions and those in use together are never more than the limit.
    idle: Mutex<Vec<(Instant, D::Session)>>,
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
            idle: Mutex::default(),
        }
    }

    /// A session to use. When all are in use, this waits for one until the instant, or for the
    /// timeout if that is longer.
    pub(super) async fn get(
        self: &Arc<Self>,
        until: Instant,
    ) -> Result<PooledSession<D>, LockError> {
        let limit = self.options.timeout;
        let until = until.max(Instant::now() + limit);
        let permit = timeout_at(until, Arc::clone(&self.permits).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            let most = self.options.connections;
            let message = format!("all {most} connections of this lock are in use");
            return Err(LockError::new(LockErrorKind::NotReady, message));
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
        let session = made.await.unwrap_or_else(|_| Err(LockError::late(limit)))?;
        let pool = Arc::clone(self);
        Ok(PooledSession { session, is_used, is_interrupted: false, pool, _permit: permit })
    }

    pub(super) async fn prepare(&self, session: &mut D::Session) -> Result<(), LockError> {
        self.database.prepare(session).await?;
        self.prepared.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends the idle sessions: another session was broken, and they may be, too.
    pub(super) fn suspect(&self) {
        let suspects = mem::take(&mut *locked(&self.idle));
        drop(suspects);
    }

    /// An idle session that can be used again.
    fn used(&self) -> Option<D::Session> {
        self.end_stale();
        locked(&self.idle).pop().map(|(_, session)| session)
    }

    /// Ends the sessions that are idle for so long that the server may end them at any time, which are
    /// the first ones.
    fn end_stale(&self) {
        let now = Instant::now();
        let mut idle = locked(&self.idle);
        let is_stale = |&&(since, _): &&(Instant, _)| now - since >= self.options.pause();
        let count = idle.iter().take_while(is_stale).count();
        let stale: Vec<_> = idle.drain(..count).collect();
        drop(idle);
        // After the mutex is released, because ending a session takes time.
        drop(stale);
    }
}

impl<D: Database> PooledSession<D> {
    /// Returns a session that holds nothing to the pool.
    pub(super) fn give_back(self) {
        if self.is_interrupted {
            return;
        }
        let Self { session, pool, .. } = self;
        locked(&pool.idle).push((Instant::now(), session));
        let stale_after = pool.options.pause();
        let pool = Arc::downgrade(&pool);
        tokio::spawn(async move {
            sleep(stale_after).await;
            pool.upgrade().inspect(|pool| pool.end_stale());
        });
    }
}
