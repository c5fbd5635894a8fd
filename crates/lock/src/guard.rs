//! `LockGuard`: a lock as its holder has it.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use super::error::LockError;
use super::hold::LockStatus;
use super::renewal_task::ActiveHold;
use super::{Fenced, Lock, Released};

/// A lock that is held. Dropping the guard releases it.
///
/// A renewal task (watchdog) renews the lease in the background. The drop at the end of a scope, by
/// `?`, by a panic or with a cancelled future releases the key. It neither blocks nor waits: the
/// release goes on in the background. The next attempt of this process waits for that release, for
/// 5 s at most, even if it is a [try](super::Locks::try_lock). To know when the key is free for
/// other processes, await [`release`](LockGuard::release).
///
/// **The lock can be lost** while the guard exists. That happens when the process is stopped, or
/// cannot reach the lock, for longer than the lease; or when the key is deleted or taken over. Then
/// [`is_lost`](LockStatus::is_lost) is true, and [`lost`](LockStatus::lost) returns. A lock that can
/// [verify](super::Lock::verify) its claims notices a deletion or a take-over within about a round
/// trip; the others notice it with the next renewal. Neither stops a write that was already sent.
/// For that, the resource has to compare [fencing tokens](LockGuard::fence).
///
/// It dereferences to its [`LockStatus`].
#[must_use = "a lock that is not kept is released at once"]
pub struct LockGuard<L> {
    hold: Arc<ActiveHold>,
    lock: PhantomData<fn() -> L>,
}

impl<L: Lock> LockGuard<L> {
    pub(super) fn new(hold: Arc<ActiveHold>) -> Self {
        Self { hold, lock: PhantomData }
    }

    /// The status of this lock, for tasks that do not have the guard but work for its holder.
    pub fn status(&self) -> LockStatus {
        LockStatus::clone(self)
    }

    /// The fencing token: a number that grows with every grant of the key.
    ///
    /// A resource that refuses a number below the largest it has seen is safe from a holder that
    /// has lost the key and does not know it yet.
    pub fn fence(&self) -> u64
    where
        L: Fenced,
    {
        // The contract of `Fenced`: every grant has one. Zero is what every resource refuses.
        LockStatus::fence(self).unwrap_or_default()
    }

    /// Releases the lock, and waits for the answer.
    ///
    /// [`NotHeld`](Released::NotHeld) says that the lock had been lost before, so another holder
    /// may have had the key meanwhile.
    ///
    /// # Errors
    /// Those of the lock, if it fails for a second. The release then goes on in the background
    /// until the lease has ended.
    ///
    /// # Cancel safety
    /// When the future is dropped, the release goes on in the background.
    pub async fn release(self) -> Result<Released, LockError> {
        // Without one, the hold was lost, and its release has begun.
        let Some(releasing) = self.hold.release() else { return Ok(Released::NotHeld) };
        releasing.done().await.map_err(|error| LockError::of_key(self.key(), error))
    }
}

impl<L> Deref for LockGuard<L> {
    type Target = LockStatus;

    fn deref(&self) -> &LockStatus {
        self.hold.status()
    }
}

impl<L> Drop for LockGuard<L> {
    fn drop(&mut self) {
        // A release that is dropped goes on in the background.
        drop(self.hold.release());
    }
}

bellwether::debug_fields! { LockGuard<L> => |it| status = **it }
