//! Replay: repeats kept invalidations, before their keys and tags are read, and by a task.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::select;
use tokio::time::sleep;

use super::inner::Inner;
use super::kept::{Change, ChangeTarget, Keeping, KeptInvalidation};
use super::reminder::Reminder;
use super::unacknowledged::LeaseCommand;
use bellwether::Tags;
use bellwether::store::{Accept, Acquire, Claim, Commit, Draft, Entry, Lease};
use bellwether::{Digest, Key};
use bellwether::{StoreError, StoreErrorKind};

impl Inner {
    /// Invalidates or expires a key or a tag, and keeps that if it fails or is dropped. Returns
    /// whether there was an entry of a key. The key is for the error.
    pub(super) async fn change(
        &self,
        target: ChangeTarget,
        change: Change,
        key: Option<&Key>,
    ) -> Result<bool, StoreError> {
        let keeper = Keeper::new(self, target, change);
        let executed = self.execute(target, keeper.merged(), key).await;
        keeper.settle(executed)
    }

    async fn execute(
        &self,
        target: ChangeTarget,
        change: Change,
        key: Option<&Key>,
    ) -> Result<bool, StoreError> {
        match target {
            ChangeTarget::Key(digest) => self.change_key(&digest, change, key).await,
            ChangeTarget::Tag(digest) => self.change_tag(&digest, change).await.map(|()| false),
        }
    }

    /// Repeats a kept invalidation. If that fails, it stays.
    async fn repeat(&self, target: ChangeTarget, kept: KeptInvalidation) -> Result<(), StoreError> {
        let change = kept.change();
        self.execute(target, change, None).await?;
        self.kept.executed(target, change, Some(kept));
        Ok(())
    }

    /// As [`lookup`](Self::lookup), after the kept invalidations of the key and the tags.
    pub(super) async fn lookup_settled(
        self: &Arc<Self>,
        key: &Key,
        tags: &Tags,
    ) -> Result<Option<Entry>, StoreError> {
        for _ in 0..TRIES {
            let reassertions = self.kept.reassertions();
            self.settle(key, tags.iter()).await?;
            let found = self.lookup(key, tags).await?;
            if self.kept.reassertions() == reassertions {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// As [`acquire`](Self::acquire), after the kept invalidations of the key and the tags.
    pub(super) async fn acquire_settled(
        self: &Arc<Self>,
        claim: &Claim,
        term: Duration,
        accept: Accept,
    ) -> Result<Acquire, StoreError> {
        let mut granted = None;
        for _ in 0..TRIES {
            let reassertions = self.kept.reassertions();
            self.settle(claim.key(), claim.tags().iter()).await?;
            let acquired = self.acquire(claim, term, accept).await?;
            if self.kept.reassertions() == reassertions {
                _ = granted.map(|reminder: Reminder<'_>| reminder.settle(Ok(())));
                return Ok(acquired);
            }
            // If the next try fails, the lease of this one has no holder.
            granted.get_or_insert_with(|| Reminder::new(self, claim, LeaseCommand::Take));
        }
        let message = "redis, taking the lease: the server was replaced again and again";
        Err(StoreError::new(StoreErrorKind::NotReady, message))
    }

    /// As [`commit`](Self::commit), after the kept invalidations of the key and the tags. They
    /// supersede it, unless its lease was granted after them. One that is an expiry is re-asserted as
    /// that.
    pub(super) async fn commit_settled(
        self: &Arc<Self>,
        lease: Lease,
        draft: Draft,
    ) -> Result<Commit, StoreError> {
        let reassertions = self.kept.reassertions();
        let tags = lease.claim().tags().iter().chain(draft.tags().iter());
        if let Err(error) = self.settle(lease.key(), tags).await {
            let reminder = Reminder::new(self, lease.claim(), LeaseCommand::Release);
            return reminder.settle(Err(error));
        }
        if lease.fence() < self.kept.floor() {
            return self.abandon(lease.claim()).await.map(|()| Commit::Superseded);
        }
        let digest = lease.key().digest();
        let is_expiry = draft.is_expiry();
        let committed = self.commit(lease, draft).await?;
        if is_expiry && committed == Commit::Stored {
            let expiry = Change::Expire { over: Duration::ZERO };
            self.kept.executed(ChangeTarget::Key(digest), expiry, None);
        }
        // An invalidation that the server has lost cannot supersede it there.
        if self.kept.reassertions() != reassertions {
            return Ok(Commit::Superseded);
        }
        Ok(committed)
    }

    /// Repeats the kept invalidations of a key and of tags. Call it before any of them is read.
    ///
    /// # Errors
    /// If one of them fails again.
    async fn settle(
        &self,
        key: &Key,
        tags: impl Iterator<Item = &Digest>,
    ) -> Result<(), StoreError> {
        if self.kept.is_quiet() {
            return Ok(());
        }
        let key = ChangeTarget::Key(key.digest());
        let tags = tags.copied().map(ChangeTarget::Tag);
        let targets = [key].into_iter().chain(tags).collect();
        // Boxed, so that operations need no memory for it as long as nothing is kept.
        Box::pin(self.settle_all(targets)).await
    }

    /// The same for tags alone.
    pub(super) async fn settle_tags(&self, tags: &Tags) -> Result<(), StoreError> {
        if self.kept.is_quiet() {
            return Ok(());
        }
        let targets = tags.iter().copied().map(ChangeTarget::Tag).collect();
        Box::pin(self.settle_all(targets)).await
    }

    async fn settle_all(&self, targets: Vec<ChangeTarget>) -> Result<(), StoreError> {
        // It may not have been started where there was no runtime.
        self.kept.start();
        if self.kept.is_floor_due() && !self.kept.raise_floor(|| self.client.latest_time()) {
            return Err(StoreError::new(StoreErrorKind::NotReady, UNREADABLE));
        }
        for target in targets {
            if let Some(kept) = self.kept.of(&target) {
                self.repeat(target, kept).await?;
            }
        }
        Ok(())
    }

    /// Repeats all kept invalidations, and returns how many of them the server has executed.
    async fn repeat_all(&self) -> usize {
        let mut executed = 0;
        for some in self.kept.all().chunks(AT_ONCE) {
            let repeated = some.iter().map(|(target, kept)| self.repeat(*target, *kept));
            let ended = join_all(repeated).await;
            let done = ended.iter().filter(|ended| ended.is_ok()).count();
            executed += done;
            // Those of other nodes of a cluster may succeed.
            if done == 0 && !self.client.is_cluster() {
                break;
            }
        }
        executed
    }
}

/// Keeps an invalidation when it is dropped, unless it was settled before.
struct Keeper<'a> {
    store: &'a Inner,
    target: ChangeTarget,
    change: Change,
    /// What was kept for the target before. It is executed as well.
    kept: Option<KeptInvalidation>,
    is_settled: bool,
}

impl<'a> Keeper<'a> {
    /// Create it before the request is sent.
    fn new(store: &'a Inner, target: ChangeTarget, change: Change) -> Self {
        Self { store, target, change, kept: store.kept.of(&target), is_settled: false }
    }

    /// What has to be executed.
    fn merged(&self) -> Change {
        self.kept.map_or(self.change, |kept| kept.change().and(self.change))
    }

    fn settle(mut self, executed: Result<bool, StoreError>) -> Result<bool, StoreError> {
        self.is_settled = true;
        let error = match executed {
            Ok(was_there) => {
                self.store.kept.executed(self.target, self.merged(), self.kept);
                return Ok(was_there);
            }
            Err(error) => error,
        };
        Err(match self.store.kept.keep(self.target, self.change) {
            Keeping::Kept => error.kept(),
            Keeping::Dropped => {
                let message = format!("{error}; too many invalidations are to be repeated already");
                StoreError::new(error.kind(), message).with_source(error)
            }
            Keeping::Off => error,
        })
    }
}

impl Drop for Keeper<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.store.kept.keep(self.target, self.change);
        }
    }
}

/// The task that repeats kept invalidations. It runs while there are any.
struct ReplayTask(Weak<Inner>);

/// Has the task started when an invalidation is kept, unless there is no runtime then.
pub(super) fn start_on_demand(store: &Arc<Inner>) {
    let weak = Arc::downgrade(store);
    store.kept.start_by(move || {
        if let Ok(runtime) = Handle::try_current()
            && let Some(store) = weak.upgrade()
            && !store.kept.has_task.swap(true, Ordering::AcqRel)
        {
            runtime.spawn(ReplayTask(Weak::clone(&weak)).run());
        }
    });
}

impl ReplayTask {
    async fn run(self) {
        self.replay_all().await;
        let store = self.0.clone();
        drop(self);
        // Some may have been added while the task ended.
        if let Some(store) = store.upgrade()
            && !store.kept.all().is_empty()
        {
            store.kept.start();
        }
    }

    async fn replay_all(&self) {
        let (mut pause, mut replayed) = (FIRST_PAUSE, 0);
        while let Some(store) = self.0.upgrade() {
            let executed = store.repeat_all().await;
            replayed += executed;
            if store.kept.all().is_empty() {
                let name = store.kept.store();
                tracing::info!(store = %name, replayed, "all kept invalidations were repeated");
                return;
            }
            pause = if executed > 0 { FIRST_PAUSE } else { LONGEST_PAUSE.min(pause * 2) };
            let is_back = store.client.is_back();
            drop(store);
            select! {
                () = is_back.notified() => {}
                () = sleep(pause) => {}
            }
        }
    }
}

impl Drop for ReplayTask {
    fn drop(&mut self) {
        if let Some(store) = self.0.upgrade() {
            store.kept.has_task.store(false, Ordering::Release);
        }
    }
}

/// How often an operation is tried while servers are replaced.
const TRIES: u32 = 3;

/// How many invalidations are repeated at once.
const AT_ONCE: usize = 64;

/// The pauses between attempts, unless the server is back before. They double while none succeeds.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

const UNREADABLE: &str = "redis: invalidations have failed that were too many to be kept, and the \
     time of the server is not known: nothing is read until it is";
