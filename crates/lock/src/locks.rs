//! `Locks`: the policy above a lock, the same for all.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bellwether::adapter::duration_within;
use bellwether::{ConfigError, Key};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::error::LockError;
use super::gates::LONGEST_RELEASE;
use super::held::Held;
use super::keeper::{Keepers, Stage};
use super::lock_wait::LockWait;
use super::running::WhenLost;
use super::waiting::{Limit, Waiting};
use super::{Attempt, Holder, Lock, LockFuture, Owner, Reentrant, Request, TakeOver};

/// Locks by keys: how long to wait for one, how it is kept, and how it ends.
///
/// ```
/// use std::time::Duration;
///
/// use bellwether::Key;
/// use bellwether_lock::{LocalLock, LockWait, Locks};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = Locks::new(LocalLock::new()).wait(LockWait::at_most(Duration::from_secs(2)));
///
/// let held = locks.lock(&Key::of("stock").with("berlin").with(42)).await?;
/// // Whatever must be done by one at a time.
/// held.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// A cheap handle: clones share what is under way, and may be told other things by the knobs.
///
/// # How it waits
/// Those of one process wait for each other in the process, in the order of arrival: at most one of
/// them asks the lock for a key. That one is woken by the lock, if the lock tells of releases, and
/// looks now and then in any case.
///
/// Trouble with the lock is an error at once, as long as nothing else is known. Once it is known that
/// somebody else has the key, trouble that may pass is waited out like that.
///
/// # How it is kept
/// A task renews it after each third of its lease, and verifies it when the lock tells that the key
/// has changed ([`Lock::verify`]), until it is given up, lost, or has been held for
/// the longest time that is allowed. A renewal that fails is tried again as long as the lease holds,
/// which is counted from before it was asked for.
///
/// The task runs in the tokio runtime in which the lock was taken. What is held when that ends is lost,
/// and free when its lease or session ends: [`shutdown`](Self::shutdown) comes before.
///
/// Nothing is kept for a key that nobody of this process holds or waits for.
pub struct Locks<L> {
    pub(super) shared: Arc<Shared<L>>,
    pub(super) knobs: Knobs<L>,
}

/// What clones share.
pub(super) struct Shared<L> {
    pub(super) lock: Arc<L>,
    pub(super) keepers: Arc<Keepers>,
}

/// What each clone can be told.
pub(super) struct Knobs<L> {
    pub(super) lease: Duration,
    pub(super) max_hold: Duration,
    pub(super) wait: LockWait,
    pub(super) owner: Option<Owner>,
    pub(super) take_over: Option<Succession<L>>,
    pub(super) when_lost: WhenLost,
}

/// When and how to take a key from a holder that is silent.
pub(super) struct Succession<L> {
    pub(super) after: Duration,
    pub(super) ask: fn(&L, Request, Holder) -> LockFuture<Attempt>,
}

impl<L: Lock> Locks<L> {
    /// Locks of this kind, held by a lease of 30 s for 10 minutes at most, and waited for 5 s at
    /// most.
    pub fn new(lock: L) -> Self {
        let lock = Arc::new(lock);
        let keepers = Arc::new(Keepers::new(Arc::clone(&lock) as Arc<dyn Lock>));
        Self {
            shared: Arc::new(Shared { lock, keepers }),
            knobs: Knobs {
                lease: Duration::from_secs(30),
                max_hold: Duration::from_secs(600),
                wait: LockWait::default(),
                owner: None,
                take_over: None,
                when_lost: WhenLost::default(),
            },
        }
    }

    /// Sets how long a key stays held after the last renewal: as long as others wait in vain after
    /// a holder has crashed. It does not limit how long it is held.
    ///
    /// Default: 30 s, so that a holder that is held up for 20 s does not lose what it holds.
    ///
    /// # Errors
    /// [`ConfigError::Duration`] unless it is from 100 ms to 1 h.
    pub fn lease(mut self, lease: Duration) -> Result<Self, ConfigError> {
        let [least, most] = [Duration::from_millis(100), Duration::from_secs(60 * 60)];
        self.knobs.lease = duration_within("lease", lease, least, most)?;
        Ok(self)
    }

    /// Sets how long a key is held at most: after that it is lost, and free after the rest of its
    /// lease. A holder that hangs would have it for ever otherwise.
    ///
    /// Default: 10 min, longer than what is done under a lock should take.
    ///
    /// # Errors
    /// [`ConfigError::Duration`] unless it is from 100 ms to 7 days.
    pub fn max_hold(mut self, max_hold: Duration) -> Result<Self, ConfigError> {
        let [least, most] = [Duration::from_millis(100), Duration::from_secs(7 * 24 * 60 * 60)];
        self.knobs.max_hold = duration_within("max_hold", max_hold, least, most)?;
        Ok(self)
    }

    /// Sets what [`lock`](Self::lock) does while another holder has the key.
    ///
    /// Default: it waits 5 s at most.
    #[must_use]
    pub fn wait(mut self, wait: LockWait) -> Self {
        self.knobs.wait = wait;
        self
    }

    /// Locks for this owner, who may take again what it holds; others wait.
    ///
    /// Without this, every lock has an owner of its own.
    #[must_use]
    pub fn owned_by(mut self, owner: Owner) -> Self
    where
        L: Reentrant,
    {
        self.knobs.owner = Some(owner);
        self
    }

    /// Sets after which time a key is taken from a holder that does not renew it.
    ///
    /// The time is that of the holder: it begins anew whenever the key passes on or is renewed, and
    /// is never less than two thirds of the lease, in which a holder in good health renews it
    /// twice. One of the waiters takes it. The old holder has lost it, and is told as soon as it
    /// [hears](Lock::verify) of that, or when it renews. All who lock a key should have the same lease.
    ///
    /// Default: never.
    ///
    /// # Errors
    /// [`ConfigError::Duration`] unless it is from 100 ms to 1 day.
    pub fn take_over_after(mut self, silence: Duration) -> Result<Self, ConfigError>
    where
        L: TakeOver,
    {
        let [least, most] = [Duration::from_millis(100), Duration::from_secs(24 * 60 * 60)];
        let after = duration_within("take_over_after", silence, least, most)?;
        self.knobs.take_over = Some(Succession { after, ask: L::take_over });
        Ok(self)
    }

    /// Sets what becomes of work that is [run](Self::run) under a lock which is lost meanwhile.
    ///
    /// Default: [`WhenLost::Cancel`].
    #[must_use]
    pub fn when_lost(mut self, when_lost: WhenLost) -> Self {
        self.knobs.when_lost = when_lost;
        self
    }

    /// Takes a key if it is free, and does not wait for another holder.
    ///
    /// What this process itself gives up at that moment (by a [`Held`] that was dropped, say) is waited
    /// for until the lock has answered its release: for 5 s at most, and for about 1 s if releasing
    /// fails.
    ///
    /// # Errors
    /// [`LockErrorKind::Busy`](super::LockErrorKind::Busy) if somebody has it.
    ///
    /// # Cancel safety
    /// What is granted to a call that was dropped is given up in the background.
    pub async fn try_lock(&self, key: &Key) -> Result<Held<L>, LockError> {
        self.ask(key, Limit::Try).await
    }

    /// Takes a key, and waits for it as [`wait`](Self::wait) says.
    ///
    /// # Errors
    /// [`LockErrorKind::TimedOut`](super::LockErrorKind::TimedOut) if it was waited for in vain.
    ///
    /// # Cancel safety
    /// Whoever waited is gone from every queue when this is dropped; what is granted to it
    /// nonetheless is given up in the background.
    pub async fn lock(&self, key: &Key) -> Result<Held<L>, LockError> {
        self.ask(key, Limit::of(&self.knobs.wait)).await
    }

    /// Takes a key, and waits for it until the deadline, which is kept even if the lock is slow to
    /// answer. After the deadline nothing is asked.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// That of [`lock`](Self::lock).
    pub async fn lock_before(&self, key: &Key, deadline: Instant) -> Result<Held<L>, LockError> {
        self.ask(key, Limit::Until(deadline)).await
    }

    /// Takes all of these keys or none, and waits for them as [`wait`](Self::wait) says: for all
    /// together, if that is a time, and for each, if it is a number of tries.
    ///
    /// They are taken in the order of their digests, whatever the order here, so two who want the
    /// same keys do not wait for each other for ever. A key that is there twice is taken once.
    ///
    /// # Errors
    /// That of the first key that was not granted, or
    /// [`LockErrorKind::Lost`](super::LockErrorKind::Lost) for one that was lost again before the
    /// last was granted. What had been taken is given up.
    ///
    /// # Cancel safety
    /// That of [`lock`](Self::lock).
    pub async fn lock_all(
        &self,
        keys: impl IntoIterator<Item = Key>,
    ) -> Result<Vec<Held<L>>, LockError> {
        let mut keys: Vec<_> = keys.into_iter().map(Key::digested).collect();
        keys.sort_by_key(Key::digest);
        keys.dedup();
        let limit = Limit::of(&self.knobs.wait);
        let mut all = Vec::with_capacity(keys.len());
        for key in &keys {
            all.push(self.ask(key, limit).await?);
        }
        match all.iter().find(|held: &&Held<L>| held.is_lost()) {
            Some(lost) => Err(LockError::lost(lost.key())),
            None => Ok(all),
        }
    }

    /// Ends all clones: no more locks are given, and who waits is told so. Those that are held may
    /// be given up for so long; then they are lost, and released. Says how many were taken away
    /// like that.
    ///
    /// To be awaited before the runtime ends: what a process leaves held, others have to wait for
    /// until its lease or its session has ended.
    ///
    /// # Cancel safety
    /// When it is dropped, no more locks are given all the same; those that are held stay.
    pub async fn shutdown(&self, patience: Duration) -> usize {
        let keepers = &self.shared.keepers;
        keepers.stage.send_if_modified(|stage| {
            let closes = *stage == Stage::Open;
            *stage = (*stage).max(Stage::Closing);
            closes
        });
        if timeout(patience, keepers.ended()).await.is_ok() {
            return 0;
        }
        let left = keepers.count();
        keepers.stage.send_replace(Stage::Closed);
        keepers.young.end();
        // A lock that fails is asked again; nobody waits for that any longer here.
        let _ = timeout(LONGEST_RELEASE, keepers.ended()).await;
        left
    }

    /// How many keys this process holds, waits for, or is releasing.
    pub fn len(&self) -> usize {
        self.shared.keepers.gates.len()
    }

    /// Whether this process neither holds nor waits for any.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    async fn ask(&self, key: &Key, limit: Limit) -> Result<Held<L>, LockError> {
        let Ok(runtime) = Handle::try_current() else { return Err(LockError::no_runtime(key)) };
        let key = key.clone().digested();
        let mut stage = self.shared.keepers.stage.subscribe();
        tokio::select! {
            biased;
            _ = stage.wait_for(|stage| *stage != Stage::Open) => Err(LockError::shut_down(&key)),
            held = Waiting::new(self, &key, limit).held(runtime) => held,
        }
    }
}

impl<L> Clone for Locks<L> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), knobs: self.knobs.clone() }
    }
}

impl<L: fmt::Debug> fmt::Debug for Locks<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("lock", &self.shared.lock)
            .field("lease", &self.knobs.lease)
            .field("max_hold", &self.knobs.max_hold)
            .field("wait", &self.knobs.wait)
            .field("gates", &self.shared.keepers.gates)
            .finish()
    }
}

impl<L> Clone for Knobs<L> {
    fn clone(&self) -> Self {
        Self { take_over: self.take_over, ..*self }
    }
}

impl<L> Clone for Succession<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Succession<L> {}
