//! `Held`: a lock as its holder has it.

use std::fmt;
use std::future;
use std::marker::PhantomData;

use bellwether::Key;
use tokio::sync::watch;
use tokio::time::Instant;

use super::error::LockError;
use super::keeper::{Departure, State};
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
    standing: Standing,
    /// Dropped with this, which tells the keeper to release it.
    departure: Departure,
    lock: PhantomData<fn() -> L>,
}

impl<L: Lock> Held<L> {
    pub(super) fn new(standing: Standing, departure: Departure) -> Self {
        Self { standing, departure, lock: PhantomData }
    }

    /// The key that is held.
    pub fn key(&self) -> &Key {
        self.standing.key()
    }

    /// Whether it has been lost, as far as this process knows. It may have been lost as soon as its
    /// lease is over, or the time for which the server keeps a session that it does not hear of. That
    /// is judged by the clock, from when the last renewal was sent that was answered, so it is right
    /// even if nothing else of this process has run meanwhile. The clock stands still while a machine
    /// is suspended: after that, the next renewal tells.
    pub fn is_lost(&self) -> bool {
        self.standing.is_lost()
    }

    /// Waits until it is lost.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped: a loss that came meanwhile is told the next time.
    pub async fn lost(&self) {
        self.standing.lost().await;
    }

    /// What others may know of it: for those who do not hold it, but work for who does.
    pub fn standing(&self) -> Standing {
        self.standing.clone()
    }

    /// The number that grows with every grant of the key. A resource that refuses a number below
    /// the largest it has seen is safe from those who have lost the key and do not know it yet.
    pub fn fence(&self) -> u64
    where
        L: Fenced,
    {
        // The contract of `Fenced`: every grant has one. Zero is what every resource refuses.
        self.standing.fence.unwrap_or_default()
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
        let Self { standing, departure, .. } = self;
        // Without a keeper it is not held any more.
        let Some(answer) = departure.release() else { return Ok(Released::NotHeld) };
        match answer.await {
            Ok(released) => released.map_err(|error| LockError::store(&standing.key, &error)),
            Err(_) => Ok(Released::NotHeld),
        }
    }
}

impl<L> fmt::Debug for Held<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.standing).finish()
    }
}

/// How a lock stands that somebody holds.
#[derive(Clone)]
pub struct Standing {
    key: Key,
    fence: Option<u64>,
    session: Option<Session>,
    state: watch::Receiver<State>,
}

impl Standing {
    pub(super) fn new(
        key: Key,
        fence: Option<u64>,
        session: Option<Session>,
        state: watch::Receiver<State>,
    ) -> Self {
        Self { key, fence, session, state }
    }

    /// The key that is held.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The [fence](Held::fence), if the lock has any.
    pub fn fence(&self) -> Option<u64> {
        self.fence
    }

    /// Whether it has been lost, as far as this process knows. A release is no loss.
    pub fn is_lost(&self) -> bool {
        match &*self.state.borrow() {
            // Who keeps it has gone, or has not yet come to see that it ended.
            State::Held { until } => {
                self.state.has_changed().is_err()
                    || until.is_some_and(|until| until <= Instant::now())
                    || self.session.as_ref().is_some_and(Session::has_ended)
            }
            State::Lost => true,
            State::Released => false,
        }
    }

    /// Waits until it is lost: for ever, if it is released before.
    ///
    /// # Cancel safety
    /// That of [`Held::lost`].
    pub async fn lost(&self) {
        let mut state = self.state.clone();
        let is_told = state.wait_for(|state| matches!(state, State::Lost)).await.is_ok();
        // Without being told: who kept it has gone, after a release perhaps.
        if !is_told && matches!(*self.state.borrow(), State::Released) {
            future::pending().await
        }
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standing")
            .field("key", &self.key)
            .field("fence", &self.fence)
            .field("is_lost", &self.is_lost())
            .finish()
    }
}
