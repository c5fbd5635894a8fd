//! `Locks`: the policy above a lock, the same for all.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bellwether::adapter::{FirstError, within};
use bellwether::{ConfigError, Key};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::acquisition::Acquisition;
use super::context::LocksContext;
use super::error::LockError;
use super::guard::LockGuard;
use super::local_queue::LONGEST_RELEASE;
use super::lock_wait::LockWait;
use super::policy::{LockPolicy, WaitLimit, WhenLost};
use super::renewal_task::ActiveHold;
use super::stats::LockStats;
use super::{Lock, Owner, Reentrant, Released, TakeOver};

/// Locks by keys, with a policy: how long to wait for one, how it is renewed, and how it ends.
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
/// let guard = locks.lock(&Key::of("stock").with("berlin").with(42)).await?;
/// // No other task or process holds the key here.
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// A cheap handle: clones share the lock and what is under way. Each clone can wait in its own way, and
/// have its own [owner](Self::owned_by). How keys are kept is said by a [`builder`](Self::builder).
///
/// # How it waits
/// Callers of one process wait for each other in a local queue, in the order of arrival. Only
/// the first of them asks the lock for a key. The lock wakes it if it reports releases. In any case,
/// it asks again from time to time. All `Locks` over clones of one lock share the queues.
///
/// Errors of the lock are returned at once. There are two exceptions: once the lock has
/// answered that another holder has the key, or that the slot of the key is moving to another node
/// of a Redis Cluster, transient errors are retried until the wait limit.
///
/// # How it is kept
/// What is held for longer than 0.1 s (or a twelfth of the lease) gets a task that renews it; a hold
/// by a session gets one at once. The task renews the lease after each third of it, and verifies
/// the hold when the lock reports a change of the key ([`Lock::verify`]). It ends when the lock is
/// released, is lost, or has been held for [`max_hold`](LocksBuilder::max_hold). A renewal that fails is
/// repeated until the lease ends. A lease counts from before its request was sent.
///
/// The task runs in the tokio runtime in which the lock was taken. When that runtime ends, its
/// locks are lost, and other processes get them when the lease or session ends. So call
/// [`shutdown`](Self::shutdown) before.
///
/// Nothing is kept for a key that this process neither holds nor waits for.
pub struct Locks<L> {
    name: Arc<str>,
    lock: Arc<L>,
    context: Arc<LocksContext>,
    pub(super) policy: LockPolicy,
}

impl<L: Lock> Locks<L> {
    /// Begins locks whose keys are kept in another way than by default.
    pub fn builder(lock: L) -> LocksBuilder<L> {
        LocksBuilder { locks: Self::new(lock), wrong: FirstError::default() }
    }

    /// Locks with the defaults: a lease of 30 s, held for 10 minutes at most, and a wait of 5 s at
    /// most.
    pub fn new(lock: L) -> Self {
        let lock = Arc::new(lock);
        let context = Arc::new(LocksContext::new(Arc::clone(&lock) as Arc<dyn Lock>));
        Self {
            name: "locks".into(),
            lock,
            context,
            policy: LockPolicy {
                lease: Duration::from_secs(30),
                max_hold: Duration::from_secs(600),
                wait: LockWait::default(),
                owner: None,
                take_over: None,
                when_lost: WhenLost::default(),
            },
        }
    }

    /// Sets what [`lock`](Self::lock) does while another holder has the key.
    ///
    /// Default: it waits 5 s at most.
    #[must_use]
    pub fn wait(mut self, wait: LockWait) -> Self {
        self.policy.wait = wait;
        self
    }

    /// Locks for this owner, which can take a key again while it holds it. Other owners wait.
    ///
    /// Default: each attempt has an owner of its own.
    #[must_use]
    pub fn owned_by(mut self, owner: Owner) -> Self
    where
        L: Reentrant,
    {
        self.policy.owner = Some(owner);
        self
    }

    /// Sets what happens to work that is [run](Self::run) under a lock that is lost meanwhile.
    ///
    /// Default: [`WhenLost::Cancel`].
    #[must_use]
    pub fn when_lost(mut self, when_lost: WhenLost) -> Self {
        self.policy.when_lost = when_lost;
        self
    }

    /// Takes a key if it is free, and does not wait for another holder.
    ///
    /// If this process is releasing the key (a [`LockGuard`] was dropped, for example), it waits
    /// until the lock has answered that release: for 5 s at most, and for about 1 s if the release
    /// fails.
    ///
    /// # Errors
    /// [`LockErrorKind::Busy`](super::LockErrorKind::Busy) if another holder has the key, and
    /// [`LockErrorKind::Unreleased`](super::LockErrorKind::Unreleased) if that release has not ended.
    ///
    /// # Cancel safety
    /// A key that is granted to a dropped call is released in the background.
    pub async fn try_lock(&self, key: &Key) -> Result<LockGuard<L>, LockError> {
        self.acquire(key, WaitLimit::Try).await
    }

    /// Takes a key, and waits for it as [`wait`](Self::wait) says.
    ///
    /// # Errors
    /// [`LockErrorKind::TimedOut`](super::LockErrorKind::TimedOut) if the key did not become free
    /// in time.
    ///
    /// # Cancel safety
    /// A dropped call leaves every queue. A key that is granted to it nonetheless is released in
    /// the background.
    pub async fn lock(&self, key: &Key) -> Result<LockGuard<L>, LockError> {
        self.acquire(key, WaitLimit::of(&self.policy.wait)).await
    }

    /// Takes a key, and waits for it until the deadline. The deadline holds even if the lock is
    /// slow to answer. After it, the lock is not asked.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// That of [`lock`](Self::lock).
    pub async fn lock_before(
        &self,
        key: &Key,
        deadline: Instant,
    ) -> Result<LockGuard<L>, LockError> {
        self.acquire(key, WaitLimit::Until(deadline)).await
    }

    /// Takes all of these keys or none, and waits for them as [`wait`](Self::wait) says. A time is
    /// the limit for all together, a number of tries is for each.
    ///
    /// The keys are taken in the order of their digests, so two callers that want the same keys
    /// cannot deadlock. A key that is given twice is taken once.
    ///
    /// # Errors
    /// That of the first key that was not granted, or
    /// [`LockErrorKind::Lost`](super::LockErrorKind::Lost) for one that was lost before the last
    /// one was granted. The keys that had been taken are released.
    ///
    /// # Cancel safety
    /// That of [`lock`](Self::lock).
    pub async fn lock_all(
        &self,
        keys: impl IntoIterator<Item = Key>,
    ) -> Result<Vec<LockGuard<L>>, LockError> {
        let mut keys: Vec<_> = keys.into_iter().map(Key::digested).collect();
        keys.sort_by_key(Key::digest);
        keys.dedup();
        let limit = WaitLimit::of(&self.policy.wait);
        let mut all = Vec::with_capacity(keys.len());
        for key in &keys {
            all.push(self.acquire(key, limit).await?);
        }
        match all.iter().find(|guard: &&LockGuard<L>| guard.is_lost()) {
            Some(lost) => Err(lost.status().lost_error()),
            None => Ok(all),
        }
    }

    /// Shuts all clones down. New attempts and waiters fail. Holders have `patience` to release;
    /// then their locks are lost, and released. Returns how many locks were lost like that.
    ///
    /// Await it before the runtime ends. Otherwise other processes wait for the keys until their
    /// leases or sessions end.
    ///
    /// # Cancel safety
    /// If it is dropped, the clones stay shut down, and locks that are held stay held.
    pub async fn shutdown(&self, patience: Duration) -> usize {
        let context = &self.context;
        context.closing.cancel();
        context.claims.close();
        if timeout(patience, context.claims.wait()).await.is_ok() {
            return 0;
        }
        let left = context.claims.len();
        context.closed.cancel();
        // If the lock fails, its releases go on in the background.
        let _ = timeout(LONGEST_RELEASE, context.claims.wait()).await;
        left
    }

    /// What these locks and all their clones have done in this process.
    pub fn stats(&self) -> LockStats {
        self.context.counters.read(self.len())
    }

    /// How many keys this process holds, waits for, or is releasing, by all [`Locks`] over clones of
    /// this lock.
    pub fn len(&self) -> usize {
        self.context.queues.len()
    }

    /// Whether this process neither holds, waits for, nor releases any key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    async fn acquire(&self, key: &Key, limit: WaitLimit) -> Result<LockGuard<L>, LockError> {
        let attempt = self.context.counters.attempt();
        let hold = self.hold(key, limit).await;
        attempt.end(hold.as_ref().err());
        hold.map(LockGuard::new)
    }

    async fn hold(&self, key: &Key, limit: WaitLimit) -> Result<Arc<ActiveHold>, LockError> {
        let Ok(runtime) = Handle::try_current() else { return Err(LockError::no_runtime(key)) };
        let acquisition = Acquisition::new(&self.context, &self.policy, key, limit);
        tokio::select! {
            biased;
            () = self.context.closing.cancelled() => Err(LockError::shut_down(key)),
            hold = acquisition.hold(runtime) => hold,
        }
    }

    /// Runs a future while a key is held. When this returns, the key has been released.
    ///
    /// That costs the round trip of the release. A release that fails is retried for a second, and
    /// one without an answer is awaited for 5 s. Then it goes on in the background, and the answer
    /// of the future is returned. A key that was lost is released in the background, too.
    ///
    /// The future starts when the lock is [taken](Locks::lock). [`when_lost`](Locks::when_lost)
    /// says what happens to it if the lock is lost meanwhile. Within the future,
    /// [`LockStatus::current`](super::LockStatus::current) is the status of this lock.
    ///
    /// # Errors
    /// Those of [`lock`](Locks::lock), and [`LockErrorKind::Lost`](super::LockErrorKind::Lost) if
    /// the lock was lost. That is also the error if the lock [may have been
    /// lost](super::LockStatus::is_lost) by the clock at the end, or if its release finds that it was.
    ///
    /// # Cancel safety
    /// Dropping this drops the future, and the key is released in the background.
    pub async fn run<F: Future>(&self, key: &Key, work: F) -> Result<F::Output, LockError> {
        let guard = self.lock(key).await?;
        let done = guard.status().scope(self.run_under(&guard, work)).await?;
        if guard.is_lost() {
            return Ok(done);
        }
        // A release that fails logs its error, and goes on in the background.
        let released = timeout(LONGEST_RELEASE, guard.release()).await;
        let was_lost = matches!(released, Ok(Ok(Released::NotHeld)));
        match self.policy.when_lost {
            WhenLost::Cancel | WhenLost::Fail if was_lost => Err(LockError::lost(key, None)),
            _ => Ok(done),
        }
    }

    async fn run_under<F: Future>(
        &self,
        guard: &LockGuard<L>,
        work: F,
    ) -> Result<F::Output, LockError> {
        let done = match self.policy.when_lost {
            WhenLost::Finish => return Ok(work.await),
            WhenLost::Fail => Some(work.await),
            WhenLost::Cancel => {
                let work = pin!(work);
                tokio::select! {
                    biased;
                    () = guard.lost() => None,
                    done = work => Some(done),
                }
            }
        };
        // The lease may have ended before the work did.
        done.filter(|_| !guard.is_lost()).ok_or_else(|| guard.status().lost_error())
    }
}

/// The options by which [`Locks`] keep a key. Made by [`Locks::builder`].
///
/// What is wrong with one of them is said by [`build`](Self::build).
#[derive(Debug)]
#[must_use]
pub struct LocksBuilder<L> {
    locks: Locks<L>,
    wrong: FirstError,
}

impl<L: Lock> LocksBuilder<L> {
    /// Sets how long a key stays held after the last renewal. After a holder has crashed, other
    /// callers wait that long. It does not limit how long a key is held. [`build`](Self::build) fails
    /// unless it is from 100 ms to 1 h.
    ///
    /// Default: 30 s, so that a holder that is stopped for 20 s does not lose the key.
    pub fn lease(mut self, lease: Duration) -> Self {
        let [least, most] = [Duration::from_millis(100), Duration::from_secs(60 * 60)];
        self.wrong.set(&mut self.locks.policy.lease, within("lease", lease, least, most));
        self
    }

    /// Sets how long a key is held at most. Then the holder has lost it, and it is free after the
    /// rest of its lease. Without a limit, a holder that hangs would keep the key for ever.
    /// [`build`](Self::build) fails unless it is from 100 ms to 7 days.
    ///
    /// Default: 10 min, longer than most work under a lock takes. The error of work that takes longer
    /// names this option.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        let [least, most] = [Duration::from_millis(100), Duration::from_secs(7 * 24 * 60 * 60)];
        let max_hold = within("max_hold", max_hold, least, most);
        self.wrong.set(&mut self.locks.policy.max_hold, max_hold);
        self
    }

    /// Sets after which time a waiter takes a key over from a holder that does not renew it.
    ///
    /// A waiter counts from the last renewal or change of holder that it saw, and for two thirds of
    /// the lease at least: a healthy holder renews twice in that time. One waiter gets the key. The
    /// old holder has lost it, and notices when it [verifies](Lock::verify) or renews its hold. All
    /// processes that lock a key should use the same lease. [`build`](Self::build) fails unless it is
    /// from 100 ms to 1 day.
    ///
    /// Default: never.
    pub fn take_over_after(mut self, silence: Duration) -> Self
    where
        L: TakeOver,
    {
        let [least, most] = [Duration::from_millis(100), Duration::from_secs(24 * 60 * 60)];
        let after = within("take_over_after", silence, least, most);
        let lock = Arc::clone(&self.locks.lock) as Arc<dyn TakeOver>;
        let take_over = after.map(|after| Some((after, lock)));
        self.wrong.set(&mut self.locks.policy.take_over, take_over);
        self
    }

    /// Names the locks in metrics.
    ///
    /// Default: `locks`.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.locks.name = name.into();
        self
    }

    /// The locks.
    ///
    /// # Errors
    /// If an option is wrong: the first one.
    pub fn build(self) -> Result<Locks<L>, ConfigError> {
        self.wrong.result().map(|()| self.locks)
    }
}

bellwether::stats_source! { Locks<L> where L: Lock => LockStats, |it| &it.name }

impl<L> Clone for Locks<L> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            lock: Arc::clone(&self.lock),
            context: Arc::clone(&self.context),
            policy: self.policy.clone(),
        }
    }
}

bellwether::debug_fields! { Locks<L> where L: Debug => |it|
    lock = it.lock,
    lease = it.policy.lease,
    max_hold = it.policy.max_hold,
    wait = it.policy.wait,
    queues = it.context.queues
}
