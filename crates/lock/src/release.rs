//! Releases: what was granted to a claim, or may have been, is released whatever becomes of the
//! caller.
//!
//! ```text
//! asked for ──refused──────────────► nothing was granted, nothing is released
//!   ├─left the queue► Release
//!   ├─dropped───────► Release ► a while later ► Release
//!   └─granted► held ──released─────► Release, awaited by the caller
//!                └────dropped──────► Release
//! ```
//!
//! A release that its caller awaits takes no task. A task releases what is dropped before, in the
//! runtime in which the key was asked for.

use std::sync::Arc;
use std::time::Duration;

use bellwether::adapter::warn_throttled;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::context::LocksContext;
use super::hold::{HoldState, LockStatus};
use super::instants::Pauses;
use super::local_queue::{PendingRelease, QueuePermit};
use super::{Claim, Released};
use crate::LockError;

/// A claim that may have been granted its key, and so has to be released.
pub(super) struct ReleaseDuty {
    pub(super) context: Arc<LocksContext>,
    /// One of the claims that a shutdown waits for.
    pub(super) _counted: TaskTrackerToken,
    pub(super) runtime: Handle,
    pub(super) claim: Claim,
    pub(super) lease: Duration,
    pub(super) max_hold: Duration,
    /// Other callers of this process wait until this is given back.
    pub(super) permit: Option<QueuePermit>,
}

/// A claim while it is asked for. Dropping this releases the claim in the background.
pub(super) struct ClaimGuard(Option<ReleaseDuty>);

impl ClaimGuard {
    pub(super) fn new(duty: ReleaseDuty) -> Self {
        Self(Some(duty))
    }

    /// Takes over the duty to release the claim. Never `None`.
    pub(super) fn take(mut self) -> Option<ReleaseDuty> {
        self.0.take()
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        if let Some(duty) = self.0.take() {
            let runtime = duty.runtime.clone();
            runtime.spawn(Release::new(duty, None).twice());
        }
    }
}

/// A release that its caller awaits. When this is dropped, it goes on in the background.
pub(super) struct Releasing(Option<Release>);

impl Releasing {
    /// `hold` is what was held, if the key was granted.
    pub(super) fn of(duty: ReleaseDuty, hold: Option<LockStatus>) -> Self {
        Self(Some(Release::new(duty, hold)))
    }

    /// Releases the key. After [`LONGEST_REPLY`] of errors it returns the error, and the release
    /// goes on in the background.
    pub(super) async fn done(mut self) -> Result<Released, LockError> {
        while let Some(release) = &mut self.0 {
            match release.attempt().await {
                Ok(released) => {
                    release.finish();
                    self.0 = None;
                    return released;
                }
                Err(error) if release.began.elapsed() >= LONGEST_REPLY => return Err(error),
                Err(_) => sleep(release.pauses.next()).await,
            }
        }
        Ok(Released::NotHeld)
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some(mut release) = self.0.take() {
            let runtime = release.duty.runtime.clone();
            runtime.spawn(async move { release.until_done().await });
        }
    }
}

/// A release that is under way.
struct Release {
    duty: ReleaseDuty,
    /// What was held, if the key was granted.
    hold: Option<LockStatus>,
    /// It has the permit. The next attempt of this process waits until this is dropped.
    pending: Option<PendingRelease>,
    /// Whether the claim held nothing when this began, as far as this process knew.
    is_lost: bool,
    began: Instant,
    pauses: Pauses,
    /// Whether an earlier try failed without an answer, and may have released the key.
    may_be_done: bool,
}

impl Release {
    fn new(mut duty: ReleaseDuty, hold: Option<LockStatus>) -> Self {
        let permit = duty.permit.take();
        let pending = duty.context.queues.releasing(duty.claim.key().digest(), permit);
        let is_lost =
            hold.as_ref().is_none_or(|hold| matches!(hold.state(), HoldState::Lost { .. }));
        Self {
            duty,
            hold,
            pending: Some(pending),
            is_lost,
            began: Instant::now(),
            pauses: Pauses::from(FIRST_PAUSE),
            may_be_done: false,
        }
    }

    /// Releases a claim that may have been granted or queued, and a while later once more. The
    /// request for the key may still be on its way, on another connection than the first release.
    async fn twice(mut self) {
        self.until_done().await;
        let again = sleep(OVERTAKEN.min(self.duty.lease));
        self.duty.context.closing.run_until_cancelled(again).await;
        self.began = Instant::now();
        self.until_done().await;
    }

    /// Tries until the key is released, or until another try is of no use.
    async fn until_done(&mut self) {
        // An attempt logs the last error itself. The lease then ends the hold.
        while self.attempt().await.is_err() {
            if let Some(pending) = self.pending.as_mut()
                && self.began.elapsed() >= LONGEST_REPLY
            {
                pending.stop_waiting();
            }
            sleep(self.pauses.next()).await;
        }
        self.finish();
    }

    /// Asks once. The outer error is transient: the release is to be tried again.
    async fn attempt(&mut self) -> Result<Result<Released, LockError>, LockError> {
        let ReleaseDuty { context, claim, lease, .. } = &self.duty;
        Ok(match context.lock.release(claim.clone()).await {
            // An earlier try whose answer was lost has released it: no other claim can have.
            Ok(Released::NotHeld) if self.may_be_done && !self.is_lost => Ok(Released::Freed),
            Ok(released) => Ok(released),
            Err(error) if error.is_transient() && self.began.elapsed() < *lease => {
                self.may_be_done |= error.is_unknown();
                return Err(error);
            }
            Err(error) => {
                warn_throttled!(target: "bellwether::lock", key = %claim.key(), %error, "a lock was not released");
                Err(error)
            }
        })
    }

    fn finish(&mut self) {
        if let Some(hold) = self.hold.as_ref().filter(|_| !self.is_lost) {
            hold.set(HoldState::Released);
        }
        self.pending = None;
    }
}

/// After how long a release is repeated that may have overtaken the request for the key: longer
/// than a request is on its way, by the timeouts of the locks here.
const OVERTAKEN: Duration = Duration::from_secs(3);

/// How long a holder waits for its release at most, while the lock fails.
const LONGEST_REPLY: Duration = Duration::from_secs(1);

const FIRST_PAUSE: Duration = Duration::from_millis(10);
