//! A lock under test.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bellwether::Key;
use bellwether_test::suite::{Checked, Deviation, Trial, ensure};
use tokio::time::{sleep, timeout};

use crate::{
    Attempt, Busy, Claim, Grant, Holder, Lock, LockError, LockWait, Locks, Owner, Released, Renew,
    Request, TakeOver, Term,
};

/// A lock, and a key that no other check uses.
pub(super) struct LockSubject {
    pub(super) lock: Arc<dyn Lock>,
    pub(super) take_over: Option<Arc<dyn TakeOver>>,
    pub(super) trial: Trial,
    /// After how long a lease or a session ends.
    pub(super) term: Duration,
}

/// A key that a claim holds.
pub(super) struct HeldKey {
    pub(super) claim: Claim,
    pub(super) owner: Owner,
    pub(super) grant: Grant,
}

impl HeldKey {
    pub(super) fn fence(&self) -> Result<u64, Deviation> {
        self.grant.fence.ok_or_else(|| Deviation::new("a grant without a fence"))
    }

    /// Whether it ends with a lease.
    pub(super) fn is_by_lease(&self) -> bool {
        matches!(self.grant.term, Term::Lease)
    }
}

impl LockSubject {
    pub(super) fn key(&self) -> Key {
        self.trial.key()
    }

    pub(super) fn claim(&self) -> Claim {
        self.trial.claim()
    }

    /// A try by this claim.
    pub(super) async fn attempt(
        &self,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Attempt, Deviation> {
        Ok(self.lock.acquire(Request::new(claim.clone(), lease)).await?)
    }

    /// Takes the key, which has to be free.
    pub(super) async fn take(&self, lease: Duration) -> Result<HeldKey, Deviation> {
        self.take_by(self.claim(), lease).await
    }

    pub(super) async fn take_by(
        &self,
        claim: Claim,
        lease: Duration,
    ) -> Result<HeldKey, Deviation> {
        let owner = Request::new(claim.clone(), lease).owner;
        self.take_for(claim, owner, lease).await
    }

    pub(super) async fn take_for(
        &self,
        claim: Claim,
        owner: Owner,
        lease: Duration,
    ) -> Result<HeldKey, Deviation> {
        let request = Request::new(claim.clone(), lease).owned_by(owner);
        match self.lock.acquire(request).await? {
            Attempt::Granted(grant) => Ok(HeldKey { claim, owner, grant }),
            Attempt::Busy(busy) => {
                Err(Deviation::new(format!("a free key was not granted: {busy:?}")))
            }
        }
    }

    /// Takes the key, which has to become free soon: a dropped request may still be on its way.
    pub(super) async fn take_soon(&self) -> Result<HeldKey, Deviation> {
        let mut last = None;
        for _ in 0..100 {
            match self.take(LONG).await {
                Ok(hold) => return Ok(hold),
                Err(instead) => last = Some(instead),
            }
            sleep(Duration::from_millis(20)).await;
        }
        Err(last.unwrap_or_else(|| Deviation::new("not tried")))
    }

    /// The busy answer for the key, which has to be held.
    pub(super) async fn busy(&self) -> Result<Busy, Deviation> {
        let claim = self.claim();
        match self.attempt(&claim, LONG).await? {
            Attempt::Busy(busy) => Ok(busy),
            Attempt::Granted(_) => {
                self.release(claim).await?;
                Err(Deviation::new("a second claim was granted the key"))
            }
        }
    }

    pub(super) async fn is_busy(&self) -> Result<bool, Deviation> {
        let claim = self.claim();
        let is_busy = matches!(self.attempt(&claim, LONG).await?, Attempt::Busy(_));
        if !is_busy {
            self.release(claim).await?;
        }
        Ok(is_busy)
    }

    pub(super) async fn release(&self, claim: Claim) -> Result<Released, Deviation> {
        Ok(self.lock.release(claim).await?)
    }

    /// Releases the key, which has to be held.
    pub(super) async fn free(&self, hold: HeldKey) -> Checked {
        let released = self.release(hold.claim).await?;
        ensure!(released == Released::Freed, "the release of a held key was {released:?}");
        Ok(())
    }

    /// Asks for a claim until it is granted, with patience, for any kind of lock.
    pub(super) async fn wait_by(
        &self,
        claim: &Claim,
        patience: Duration,
    ) -> Result<Grant, Deviation> {
        let mut watch = self.lock.watch(claim.key());
        loop {
            let request = Request::new(claim.clone(), LONG).patient_for(patience);
            if let Attempt::Granted(grant) = self.lock.acquire(request).await? {
                return Ok(grant);
            }
            let _ = timeout(Duration::from_millis(20), watch.changed()).await;
        }
    }

    pub(super) async fn renew(&self, hold: &HeldKey, lease: Duration) -> Result<Renew, Deviation> {
        Ok(self.lock.renew(&hold.claim, lease).await?)
    }

    /// A hold whose lease has ended. `None` for a hold by a session.
    pub(super) async fn lapsed(&self) -> Result<Option<HeldKey>, Deviation> {
        let hold = self.take(SHORT).await?;
        if !hold.is_by_lease() {
            self.free(hold).await?;
            return Ok(None);
        }
        sleep(SHORT * 2).await;
        Ok(Some(hold))
    }

    /// Takes a place in the queue.
    pub(super) async fn queue_up(&self, claim: &Claim) -> Result<Busy, Deviation> {
        let request = Request::new(claim.clone(), LONG).patient_for(SHORT);
        match self.lock.acquire(request).await? {
            Attempt::Busy(busy) => Ok(busy),
            Attempt::Granted(_) => Err(Deviation::new("a second claim was granted the key")),
        }
    }

    /// The locks of a process that never waits for another holder.
    pub(super) fn locks(&self) -> Locks<Arc<dyn Lock>> {
        Locks::new(Arc::clone(&self.lock)).wait(LockWait::fail_fast())
    }

    pub(super) fn locks_that_lapse(&self) -> Result<Locks<Arc<dyn Lock>>, Deviation> {
        let locks = Locks::builder(Arc::clone(&self.lock)).lease(self.term).build();
        locks.map_err(|error| Deviation::new(format!("the lease was refused: {error}")))
    }

    /// Blocks the thread, so that no other task of this process runs.
    pub(super) fn stand_still(&self) {
        thread::sleep(self.term + self.term / 10);
    }

    pub(super) async fn take_over(
        &self,
        claim: &Claim,
        from: Holder,
    ) -> Result<Attempt, Deviation> {
        let Some(lock) = &self.take_over else { return Err(Deviation::new("no such lock")) };
        Ok(lock.take_over(Request::new(claim.clone(), LONG), from).await?)
    }

    /// The holder of the key, as other claims see it.
    pub(super) async fn seen(&self) -> Result<Holder, Deviation> {
        self.busy().await?.holder.ok_or_else(|| Deviation::new("the busy answer has no holder"))
    }

    pub(super) async fn ensure_refused(&self, from: Holder, which: &str) -> Checked {
        let attempt = self.take_over(&self.claim(), from).await?;
        ensure!(matches!(attempt, Attempt::Busy(_)), "it was taken from {which}");
        Ok(())
    }
}

/// Short enough to wait for its end, and long enough to ask before.
pub(super) const SHORT: Duration = Duration::from_millis(200);

pub(super) const MEDIUM: Duration = Duration::from_millis(450);

/// Longer than any check.
pub(super) const LONG: Duration = Duration::from_secs(60);

impl From<LockError> for Deviation {
    fn from(error: LockError) -> Self {
        Self::new(format!("failed: {error}"))
    }
}
