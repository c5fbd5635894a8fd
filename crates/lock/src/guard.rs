//! `LockGuard`: a lock as its holder has it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bellwether::Key;

use super::error::LockError;
use super::hold::LockHold;
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
/// [`is_lost`](LockGuard::is_lost) is true, and [`lost`](LockGuard::lost) returns. A lock that can
/// [verify](super::Lock::verify) its claims notices a deletion or a take-over within about a round
/// trip; the others notice it with the next renewal. Neither stops a write that was already sent.
/// For that, the resource has to compare [fencing tokens](LockGuard::fence).
#[must_use = "a lock that is not kept is released at once"]
pub struct LockGuard<L> {
    hold: ReleaseOnDrop,
    lock: PhantomData<fn() -> L>,
}

struct ReleaseOnDrop(Arc<ActiveHold>);

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        // A release that is dropped goes on in the background.
        drop(self.0.release());
    }
}

impl<L: Lock> LockGuard<L> {
    pub(super) fn new(hold: Arc<ActiveHold>) -> Self {
        Self { hold: ReleaseOnDrop(hold), lock: PhantomData }
    }

    fn hold(&self) -> &LockHold {
        self.hold.0.hold()
    }

    /// The key that is held.
    pub fn key(&self) -> &Key {
        self.hold().key()
    }

    /// Whether the lock has been lost, as far as this process knows.
    ///
    /// The clock decides, so this is right even if no other task has run meanwhile. A lease counts
    /// from when the last answered renewal was sent, and a session from when its last answered
    /// request was sent. While a machine is suspended its clock stands still; then the next renewal
    /// notices the loss.
    pub fn is_lost(&self) -> bool {
        self.hold().is_lost()
    }

    /// Waits until the lock is lost.
    ///
    /// # Cancel safety
    /// It can be dropped and called again: a loss in between is noticed.
    pub async fn lost(&self) {
        self.hold().lost().await;
    }

    /// The status of this lock, for tasks that do not have the guard but work for its holder.
    pub fn status(&self) -> LockStatus {
        LockStatus(Arc::clone(self.hold.0.hold()))
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
        self.hold().fence.unwrap_or_default()
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
        let Some(releasing) = self.hold.0.release() else { return Ok(Released::NotHeld) };
        releasing.done().await.map_err(|error| LockError::of_key(self.hold().key(), error))
    }
}

impl<L> fmt::Debug for LockGuard<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = LockStatus(Arc::clone(self.hold.0.hold()));
        f.debug_tuple("LockGuard").field(&status).finish()
    }
}

/// The status of a lock that is held: which key it is, its fence, and whether it was lost.
///
/// A cheap handle, which neither keeps nor releases the lock.
#[derive(Clone)]
pub struct LockStatus(Arc<LockHold>);

tokio::task_local! {
    static CURRENT: LockStatus;
}

impl LockStatus {
    /// The key that is held.
    pub fn key(&self) -> &Key {
        self.0.key()
    }

    /// The [fence](LockGuard::fence), if the lock is [`Fenced`].
    pub fn fence(&self) -> Option<u64> {
        self.0.fence
    }

    /// Whether the lock has been lost, as far as this process knows. A release is no loss.
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Waits until the lock is lost. If it is released instead, this never returns.
    ///
    /// # Cancel safety
    /// That of [`LockGuard::lost`].
    pub async fn lost(&self) {
        self.0.lost().await;
    }

    /// The status of the lock under which this code runs: that of the innermost
    /// [`Locks::run`](super::Locks::run), [`LockLayer`](super::LockLayer) or `#[locked]`. `None`
    /// outside of them, and in a task that was spawned inside.
    ///
    /// Send its [fence](LockStatus::fence) along with each write.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Runs a future in which this is the [current](Self::current) status.
    pub(super) async fn scope<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }
}

impl fmt::Debug for LockStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockStatus")
            .field("key", self.key())
            .field("fence", &self.fence())
            .field("is_lost", &self.is_lost())
            .finish()
    }
}
