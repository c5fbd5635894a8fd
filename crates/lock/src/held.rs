//! `Held`: a lock as its holder has it.

use std::fmt;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether::Key;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::LockError;
use super::keeper::Keeping;
use super::{Fenced, Lock, Released, Session};

/// A lock as its holder has it.
///
/// It is renewed in the background, and given up when this is dropped: at the end of a scope, by
/// `?`, by a panic, or with the future that has it. Dropping neither blocks nor waits. The next attempt
/// of this process waits until the lock has answered that release, for 5 s at most, even if it is a
/// [try](super::Locks::try_lock). For other processes, [`release`](Held::release) tells when it is free.
///
/// **It can be lost** while it is held: a process that was stopped for longer than its lease has
/// lost it, and so has one that could not reach the lock for as long. Then
/// [`is_lost`](Held::is_lost) says so, and [`lost`](Held::lost) ends. A lock that
/// [hears](super::Lock::verify) of its own claims tells of a key that was deleted or taken over within
/// about a round trip, and the others with the next renewal. Neither can stop what was
/// already sent elsewhere: that takes a resource that compares [fences](Held::fence).
#[must_use = "a lock that is not kept is released at once"]
pub struct Held<L> {
    departure: Departure,
    lock: PhantomData<fn() -> L>,
}

/// Releases what is held when it is dropped.
struct Departure(Arc<Keeping>);

impl Drop for Departure {
    fn drop(&mut self) {
        // A release that is dropped goes on in the background.
        drop(self.0.release());
    }
}

impl<L: Lock> Held<L> {
    pub(super) fn new(keeping: Arc<Keeping>) -> Self {
        Self { departure: Departure(keeping), lock: PhantomData }
    }

    fn hold(&self) -> &Hold {
        self.departure.0.hold()
    }

    /// The key that is held.
    pub fn key(&self) -> &Key {
        &self.hold().key
    }

    /// Whether it has been lost, as far as this process knows. It may have been lost as soon as its
    /// lease is over, or the time for which the server keeps a session that it does not hear of. That
    /// is judged by the clock, from when the last renewal was sent that was answered, so it is right
    /// even if nothing else of this process has run meanwhile. The clock stands still while a machine
    /// is suspended: after that, the next renewal tells.
    pub fn is_lost(&self) -> bool {
        self.hold().is_lost()
    }

    /// Waits until it is lost.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped: a loss that came meanwhile is told the next time.
    pub async fn lost(&self) {
        self.hold().lost().await;
    }

    /// What others may know of it: for those who do not hold it, but work for who does.
    pub fn standing(&self) -> Standing {
        Standing(Arc::clone(self.departure.0.hold()))
    }

    /// The number that grows with every grant of the key. A resource that refuses a number below
    /// the largest it has seen is safe from those who have lost the key and do not know it yet.
    pub fn fence(&self) -> u64
    where
        L: Fenced,
    {
        // The contract of `Fenced`: every grant has one. Zero is what every resource refuses.
        self.hold().fence.unwrap_or_default()
    }

    /// Gives it up, and waits until that is done.
    ///
    /// [`NotHeld`](Released::NotHeld) says that it had been lost before: somebody else may have held
    /// it meanwhile.
    ///
    /// # Errors
    /// Those of the lock, if it did not answer within a second. It is still being released then, in
    /// the background, until its lease ends by itself.
    ///
    /// # Cancel safety
    /// It is released all the same when this is dropped.
    pub async fn release(self) -> Result<Released, LockError> {
        // It is not held any more, or is being released already.
        let Some(releasing) = self.departure.0.release() else { return Ok(Released::NotHeld) };
        releasing.done().await.map_err(|error| LockError::store(&self.hold().key, &error))
    }
}

impl<L> fmt::Debug for Held<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let standing = Standing(Arc::clone(self.departure.0.hold()));
        f.debug_tuple("Held").field(&standing).finish()
    }
}

/// How a lock stands that somebody holds.
#[derive(Clone)]
pub struct Standing(Arc<Hold>);

impl Standing {
    /// The key that is held.
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// The [fence](Held::fence), if the lock has any.
    pub fn fence(&self) -> Option<u64> {
        self.0.fence
    }

    /// Whether it has been lost, as far as this process knows. A release is no loss.
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Waits until it is lost: for ever, if it is released before.
    ///
    /// # Cancel safety
    /// That of [`Held::lost`].
    pub async fn lost(&self) {
        self.0.lost().await;
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standing")
            .field("key", self.key())
            .field("fence", &self.fence())
            .field("is_lost", &self.is_lost())
            .finish()
    }
}

/// What was granted, and how it stands.
pub(super) struct Hold {
    key: Key,
    fence: Option<u64>,
    session: Option<Session>,
    /// Held to read or write it, never across an `.await`.
    state: Mutex<State>,
    /// Rung when it is lost.
    changed: Notify,
}

/// How a hold stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It holds until then, if it is not renewed; or as long as a session does.
    Held { until: Option<Instant> },
    /// It does not hold any more, or nobody knows.
    Lost,
    /// It was given up.
    Released,
}

impl Hold {
    pub(super) fn new(
        key: Key,
        fence: Option<u64>,
        state: State,
        session: Option<Session>,
    ) -> Self {
        Self { key, fence, session, state: Mutex::new(state), changed: Notify::new() }
    }

    pub(super) fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    pub(super) fn state(&self) -> State {
        *self.lock()
    }

    /// Until when its lease holds, if nothing renews it.
    pub(super) fn until(&self) -> Option<Instant> {
        match self.state() {
            State::Held { until } => until,
            State::Lost | State::Released => None,
        }
    }

    /// Notes how it stands. A loss and a release are final.
    pub(super) fn set(&self, next: State) {
        let mut state = self.lock();
        if !matches!(*state, State::Held { .. }) {
            return;
        }
        *state = next;
        drop(state);
        if next == State::Lost {
            self.changed.notify_waiters();
        }
    }

    fn is_lost(&self) -> bool {
        match self.state() {
            // Its renewal task has perhaps not yet come to see that it ended.
            State::Held { until } => {
                until.is_some_and(|until| until <= Instant::now())
                    || self.session.as_ref().is_some_and(Session::has_ended)
            }
            State::Lost => true,
            State::Released => false,
        }
    }

    async fn lost(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Before it looks: a loss after that rings.
            changed.as_mut().enable();
            if self.state() == State::Lost {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // One value, which is whole whatever its writer did afterwards.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
