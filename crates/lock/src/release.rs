//! Releases: what was granted to a claim, or may have been, is given up whatever becomes of the caller.
//!
//! ```text
//! asked for ──refused──────────────► nothing was granted, nothing is released
//!   ├─left──────────► Release
//!   ├─dropped───────► Release ► a while later ► Release
//!   └─granted► held ──released─────► Release, awaited by the caller
//!                └────dropped──────► Release
//! ```
//!
//! A release that its caller awaits takes no task. Whatever is dropped before it has been released is
//! released by a task, in the runtime in which it was asked for.

use std::sync::Arc;
use std::time::Duration;

use bellwether::StoreError;
use bellwether::adapter::warn_throttled;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::error::{is_unknown, may_pass};
use super::gates::{Pass, PendingRelease};
use super::held::{Hold, State};
use super::keeper::{Counted, Stage};
use super::{Claim, Released};

/// A claim that may have been granted its key, and so has to be released.
pub(super) struct Claimed {
    pub(super) keepers: Counted,
    pub(super) runtime: Handle,
    pub(super) claim: Claim,
    pub(super) lease: Duration,
    pub(super) max_hold: Duration,
    /// Others of this process come after what this has released.
    pub(super) pass: Option<Pass>,
}

/// A claim while it is asked for. When this is dropped, the claim is released in the background.
pub(super) struct Asking(Option<Claimed>);

impl Asking {
    pub(super) fn new(claimed: Claimed) -> Self {
        Self(Some(claimed))
    }

    /// There is nothing to release.
    pub(super) fn refused(mut self) {
        self.0 = None;
    }

    /// It may have a place in a queue.
    pub(super) fn left(mut self) {
        if let Some(claimed) = self.0.take() {
            Release::new(claimed, None).spawn();
        }
    }

    /// It was granted: the caller sees to its release. `None` cannot happen.
    pub(super) fn granted(mut self) -> Option<Claimed> {
        self.0.take()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(claimed) = self.0.take() {
            let runtime = claimed.runtime.clone();
            runtime.spawn(Release::new(claimed, None).twice());
        }
    }
}

/// A release that its caller awaits. When this is dropped, it goes on in the background.
pub(super) struct Releasing(Option<Release>);

impl Releasing {
    pub(super) fn of(claimed: Claimed, hold: &Arc<Hold>) -> Self {
        Self(Some(Release::new(claimed, Some(Arc::clone(hold)))))
    }

    /// Releases it, or gives the error after [`LONGEST_REPLY`] of errors and goes on in the background.
    pub(super) async fn done(mut self) -> Result<Released, StoreError> {
        while let Some(release) = &mut self.0 {
            match release.attempt().await {
                Ok(released) => {
                    release.finish();
                    self.0 = None;
                    return released;
                }
                Err(error) if release.began.elapsed() >= LONGEST_REPLY => return Err(error),
                Err(_) => release.pause().await,
            }
        }
        Ok(Released::NotHeld)
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
            release.spawn();
        }
    }
}

/// A release, as far as it has come.
struct Release {
    claimed: Claimed,
    /// What was held, if anything was granted.
    hold: Option<Arc<Hold>>,
    /// The next attempt of this process waits as long as this is here.
    pending: Option<PendingRelease>,
    /// Whether the claim held nothing when this began, as far as this process knew.
    is_lost: bool,
    began: Instant,
    next_pause: Duration,
    may_be_done: bool,
}

impl Release {
    fn new(claimed: Claimed, hold: Option<Arc<Hold>>) -> Self {
        let pending = claimed.keepers.gates.releasing(claimed.claim.key().digest());
        let is_lost = hold.as_ref().is_none_or(|hold| hold.state() == State::Lost);
        Self {
            claimed,
            hold,
            pending: Some(pending),
            is_lost,
            began: Instant::now(),
            next_pause: FIRST_PAUSE,
            may_be_done: false,
        }
    }

    fn spawn(self) {
        let runtime = self.claimed.runtime.clone();
        runtime.spawn(self.to_its_end());
    }

    async fn to_its_end(mut self) {
        self.release().await;
    }

    /// Releases what was perhaps granted, or perhaps waits in a queue. The question may still be on its
    /// way, on another connection than the release, so it is released once more.
    async fn twice(mut self) {
        self.release().await;
        let Claimed { keepers, lease, .. } = &self.claimed;
        let mut stage = keepers.stage.subscribe();
        tokio::select! {
            () = sleep(OVERTAKEN.min(*lease)) => {}
            _ = stage.wait_for(|stage| *stage != Stage::Open) => {}
        }
        self.began = Instant::now();
        self.release().await;
    }

    /// Tries until it is released, or is not worth another try.
    async fn release(&mut self) {
        // An error has been told by the log, and ends with the lease.
        while self.attempt().await.is_err() {
            if self.began.elapsed() >= LONGEST_REPLY {
                self.pending = None;
            }
            self.pause().await;
        }
        self.finish();
    }

    /// Asks once. An error is one that may pass, so it is to be tried again.
    async fn attempt(&mut self) -> Result<Result<Released, StoreError>, StoreError> {
        let Claimed { keepers, claim, lease, .. } = &self.claimed;
        let error = match keepers.lock.release(claim.clone()).await {
            // By an earlier try, whose answer was lost: nobody else can have done it.
            Ok(Released::NotHeld) if self.may_be_done && !self.is_lost => Ok(Released::Freed),
            Ok(released) => Ok(released),
            Err(error) if may_pass(&error) && self.began.elapsed() < *lease => {
                self.may_be_done |= is_unknown(&error);
                return Err(error);
            }
            Err(error) => {
                warn_throttled!(key = %claim.key(), %error, "a lock was not released");
                Err(error)
            }
        };
        Ok(error)
    }

    async fn pause(&mut self) {
        sleep(self.next_pause).await;
        self.next_pause = (self.next_pause * 2).min(LONGEST_PAUSE);
    }

    fn finish(&mut self) {
        if let Some(hold) = self.hold.as_ref().filter(|_| !self.is_lost) {
            hold.set(State::Released);
        }
        let pass = self.claimed.pass.take();
        // An attempt that waits for the release then finds the gate open.
        match self.pending.take() {
            Some(pending) => pending.leave(pass),
            None => drop(pass),
        }
    }
}

/// After how long a release is repeated that may have overtaken a question: longer than a question
/// is on its way, by the budgets of the locks here.
const OVERTAKEN: Duration = Duration::from_secs(3);

/// How long a holder waits for its release at most, while the lock fails.
const LONGEST_REPLY: Duration = Duration::from_secs(1);

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
