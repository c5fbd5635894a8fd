//! Links: the sessions that are there, in use or not, and how many there may be.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bellwether::StoreErrorKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{Database, SessionError, SessionSettings};

/// The sessions of one lock.
pub(super) struct SessionPool<D: Database> {
    pub(super) database: D,
    timeout: Duration,
    /// A session that was not used for so long is not used again: the server is about to end it.
    fresh_for: Duration,
    most: usize,
    /// Whether the tables are known to be there.
    prepared: AtomicBool,
    room: Arc<Semaphore>,
    /// Those that hold nothing, the last used at the end. Held for a moment, never across an
    /// `.await`. With those in use they are never more than there may be, as a session is begun
    /// only when there is none here.
    idle: Arc<Mutex<IdleSessions<D::Session>>>,
}

struct IdleSessions<L> {
    sessions: Vec<Idle<L>>,
    /// Whether a task ends those that are left for too long. There is one as long as any is here.
    is_swept: bool,
}

struct Idle<L> {
    session: L,
    since: Instant,
}

/// A session in use. It is ended when this is dropped.
pub(super) struct PooledSession<D: Database> {
    pub(super) session: D::Session,
    /// It may have ended since it was used last.
    pub(super) is_used: bool,
    /// What waited on it was interrupted. When the server hears of that is not known, and then it
    /// may interrupt another claim's question.
    pub(super) is_interrupted: bool,
    idle: Arc<Mutex<IdleSessions<D::Session>>>,
    fresh_for: Duration,
    _room: OwnedSemaphorePermit,
}

impl<D: Database> SessionPool<D> {
    pub(super) fn new(database: D, settings: &SessionSettings) -> Self {
        Self {
            database,
            timeout: settings.timeout,
            fresh_for: settings.pause(),
            most: settings.connections,
            prepared: AtomicBool::new(false),
            room: Arc::new(Semaphore::new(settings.connections)),
            idle: Arc::new(Mutex::new(IdleSessions { sessions: Vec::new(), is_swept: false })),
        }
    }

    /// A session to use. When all are in use, one is waited for until then, or a while at least.
    pub(super) async fn get(&self, until: Instant) -> Result<PooledSession<D>, SessionError> {
        let until = until.max(Instant::now() + self.timeout);
        let room = timeout_at(until, Arc::clone(&self.room).acquire_owned()).await;
        let Ok(Ok(room)) = room else {
            let said = format!("all {} connections of this lock are in use", self.most);
            return Err(SessionError::refused(StoreErrorKind::NotReady, said));
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
        let (idle, fresh_for) = (Arc::clone(&self.idle), self.fresh_for);
        Ok(PooledSession { session, is_used, is_interrupted: false, idle, fresh_for, _room: room })
    }

    pub(super) async fn prepare(&self, session: &mut D::Session) -> Result<(), SessionError> {
        self.database.prepare(session).await?;
        self.prepared.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends those that hold nothing: they may have broken, as another one has.
    pub(super) fn suspect(&self) {
        let suspects = std::mem::take(&mut lock(&self.idle).sessions);
        drop(suspects);
    }

    /// One that can be used again.
    fn used(&self) -> Option<D::Session> {
        let mut idle = lock(&self.idle);
        let stale = idle.stale(self.fresh_for);
        let found = idle.sessions.pop().map(|idle| idle.session);
        drop(idle);
        // Not while the others wait for us: to end a session is work.
        drop(stale);
        found
    }
}

impl<D: Database> PooledSession<D> {
    /// For a session that holds nothing.
    pub(super) fn give_back(self) {
        if self.is_interrupted {
            return;
        }
        let Self { session, idle, fresh_for, .. } = self;
        let mut resting = lock(&idle);
        resting.sessions.push(Idle { session, since: Instant::now() });
        let is_swept = std::mem::replace(&mut resting.is_swept, true);
        drop(resting);
        if !is_swept {
            tokio::spawn(sweep(Arc::downgrade(&idle), fresh_for));
        }
    }
}

/// Ends the sessions that are not used, until there is none.
async fn sweep<L>(idle: Weak<Mutex<IdleSessions<L>>>, fresh_for: Duration) {
    loop {
        sleep(fresh_for).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut resting = lock(&idle);
        let stale = resting.stale(fresh_for);
        resting.is_swept = !resting.sessions.is_empty();
        let is_done = !resting.is_swept;
        drop(resting);
        drop(stale);
        if is_done {
            return;
        }
    }
}

impl<L> IdleSessions<L> {
    /// Takes out those that are not to be used again, which are the first.
    fn stale(&mut self, fresh_for: Duration) -> Vec<Idle<L>> {
        let now = Instant::now();
        let count = self.sessions.iter().take_while(|idle| now - idle.since >= fresh_for).count();
        self.sessions.drain(..count).collect()
    }
}

fn lock<L>(idle: &Mutex<IdleSessions<L>>) -> MutexGuard<'_, IdleSessions<L>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Database> fmt::Debug for SessionPool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionPool")
            .field("database", &self.database)
            .field("idle", &lock(&self.idle).sessions.len())
            .field("room", &self.room.available_permits())
            .finish_non_exhaustive()
    }
}
