//! A hold from its grant to its release, and the task that renews it (the watchdog).
//!
//! ```text
//! deferred ──released, dropped───────────────► Release
//!   └─due► RenewalTask ──released, dropped───► Release
//!            └─────────lost► wait for its end ► Release
//! ```
//!
//! A deferred hold has no task of its own: [`DeferredRenewals`](super::deferred_renewal) starts one
//! when it is due. The [`ReleaseDuty`] is taken out of an [`ActiveHold`] once, so it is released
//! once.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{future, mem, ptr};

use bellwether::adapter::{locked, warn_throttled};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::context::LocksContext;
use super::deferred_renewal::DeferredKey;
use super::hold::{HoldState, LockStatus};
use super::instants::{Pauses, reached, valid_until};
use super::release::{ReleaseDuty, Releasing};
use super::runtime_waker::RuntimeWaker;
use super::{Renew, Watch};

/// A hold, from its grant to its release.
pub(super) struct ActiveHold {
    status: LockStatus,
    context: Arc<LocksContext>,
    lease: Duration,
    /// When the holder has lost it at the latest.
    longest: Instant,
    granted_at: Instant,
    asked_at: Instant,
    /// When it needs its renewal task.
    due: Instant,
    /// Held to take the duty or to copy from it, never across an `.await`.
    duty: Mutex<HolderDuty>,
    /// Notified when the holder releases.
    ended: Notify,
}

struct HolderDuty {
    /// The code that takes this releases the key.
    release: Option<ReleaseDuty>,
    /// Reports changes of the key from before it was asked for.
    watch: Watch,
}

impl ActiveHold {
    /// Sees to it that a hold is renewed when it is due.
    pub(super) fn begin(
        status: LockStatus,
        duty: ReleaseDuty,
        asked_at: Instant,
        watch: Watch,
    ) -> Arc<Self> {
        let granted_at = Instant::now();
        let ReleaseDuty { lease, max_hold, .. } = duty;
        let context = Arc::clone(&duty.context);
        let runtime = duty.runtime.clone();
        context.counters.note(|stats| stats.held += 1);
        // Not deferred for long: the first renewal is due after a third of the lease.
        let deferral = FIRST_VERIFIED.min(lease / 12);
        let due = granted_at + deferral;
        let is_due = status.session().is_some() || asked_at + lease / 3 <= due;
        let active = Arc::new(Self {
            status,
            context,
            lease,
            longest: granted_at + max_hold,
            granted_at,
            asked_at,
            due,
            duty: Mutex::new(HolderDuty { release: Some(duty), watch }),
            ended: Notify::new(),
        });
        let task = RenewalTask(Arc::clone(&active));
        if is_due {
            task.start();
        } else {
            let deferred = &active.context.deferred;
            deferred.add(active.deferred_key(), deferral, &runtime, || task.start());
        }
        active
    }

    pub(super) fn status(&self) -> &LockStatus {
        &self.status
    }

    /// The release, unless it has begun already.
    pub(super) fn release(&self) -> Option<Releasing> {
        let duty = self.take_duty()?;
        self.context.deferred.remove(self.deferred_key(), duty.runtime.id());
        self.ended.notify_one();
        Some(Releasing::of(duty, Some(self.status.clone())))
    }

    fn deferred_key(&self) -> DeferredKey {
        (self.due, ptr::from_ref(self).addr())
    }

    fn take_duty(&self) -> Option<ReleaseDuty> {
        let duty = locked(&self.duty).release.take()?;
        self.context.counters.note(|stats| stats.held -= 1);
        Some(duty)
    }

    /// Marks the hold as lost, unless it is being released.
    fn lose(&self) -> bool {
        let mut duty = locked(&self.duty);
        let Some(release) = &mut duty.release else { return false };
        let max_hold = (Instant::now() >= self.longest).then(|| self.longest - self.granted_at);
        self.status.set(HoldState::Lost { max_hold });
        let permit = release.permit.take();
        drop(duty);
        // Other callers of this process need not wait for a holder that has lost the key.
        drop(permit);
        true
    }

    /// Waits until the hold is lost. Returns when it is to be released, unless its holder releases it
    /// before: without an instant, only a shutdown does.
    async fn loss(&self, watch: &mut Watch) -> Option<Instant> {
        tokio::select! {
            biased;
            () = self.context.closed.cancelled() => Some(Instant::now()),
            () = self.term_ended() => None,
            () = sleep_until(self.longest) => {
                Some(self.status.until().unwrap_or_else(|| self.longest + self.lease))
            }
            () = self.verifications(watch) => None,
            () = self.renewals() => None,
        }
    }

    /// Waits until the lease or the session has ended.
    async fn term_ended(&self) {
        if let Some(session) = self.status.session() {
            return session.clone().ended().await;
        }
        // A renewal may move the end meanwhile.
        while let Some(until) = self.status.until().filter(|until| *until > Instant::now()) {
            sleep_until(until).await;
        }
    }

    /// Renews the hold after each third of its lease. Returns when it is lost.
    async fn renewals(&self) {
        let Self { context, status, lease, .. } = self;
        let mut due = self.asked_at + *lease / 3;
        loop {
            sleep_until(due).await;
            let asked_at = Instant::now();
            match context.lock.renew(status.claim(), *lease).await {
                Ok(Renew::Lost) => return,
                Ok(Renew::Held) => {
                    context.counters.note(|stats| stats.renewed += 1);
                    let until = status.until().map(|_| valid_until(asked_at, *lease));
                    status.set(HoldState::Held { until });
                    due = asked_at + *lease / 3;
                }
                // The lease has not ended: it is renewed again before it does.
                Err(error) => {
                    context.counters.note(|stats| stats.renewals_failed += 1);
                    warn_throttled!(target: "bellwether::lock", key = %status.key(), %error, "a lock was not renewed");
                    due = Instant::now() + *lease / 12;
                }
            }
        }
    }

    /// Verifies the hold between renewals, each time the lock reports a change of the key. Returns when
    /// it is lost.
    ///
    /// The first verification is due 0.1 s after the grant. It subscribes to changes of the key, so a
    /// hold that ends before costs nothing. A renewal changes the key as well: the change is reported
    /// and verified, and is no loss.
    async fn verifications(&self, watch: &mut Watch) {
        let mut due = first_verified(watch, self.lease, self.granted_at);
        let mut pauses = Pauses::from(FIRST_PAUSE);
        loop {
            match due {
                Some(due) => sleep_until(due).await,
                None => _ = watch.changed().await,
            }
            let verified = self.context.lock.verify(self.status.claim());
            let Some(verified) = verified else { return future::pending().await };
            match verified.await {
                Ok(Renew::Lost) => return,
                Ok(Renew::Held) => (due, pauses) = (None, Pauses::from(FIRST_PAUSE)),
                // Only an answered verification subscribes to changes.
                Err(error) => {
                    tracing::debug!(target: "bellwether::lock", %error, "a lock was not verified");
                    due = Some(Instant::now() + pauses.next().min(self.lease / 12));
                }
            }
        }
    }
}

/// The renewal task of a hold. Nothing renews a hold whose task is dropped, such as by the end of its
/// runtime: the hold is lost.
struct RenewalTask(Arc<ActiveHold>);

impl RenewalTask {
    /// Starts the task, if the hold is still held.
    fn start(self) {
        let mut duty = locked(&self.0.duty);
        let HolderDuty { release: Some(release), watch } = &mut *duty else { return };
        let watch = mem::replace(watch, Watch::silent());
        let runtime = release.runtime.clone();
        drop(duty);
        RuntimeWaker::spawn(&runtime, self.run(watch));
    }

    async fn run(self, mut watch: Watch) {
        let active = &self.0;
        let release_at = tokio::select! {
            biased;
            () = active.ended.notified() => return,
            release_at = active.loss(&mut watch) => release_at,
        };
        if !active.lose() {
            return;
        }
        active.context.counters.note(|stats| stats.lost += 1);
        let (key, error) = (active.status.key(), active.status.lost_error());
        warn_throttled!(target: "bellwether::lock", %key, %error, "a lock was lost while it was held");
        tokio::select! {
            biased;
            () = active.ended.notified() => return,
            () = reached(release_at) => {}
            () = active.context.closed.cancelled() => {}
        }
        if let Some(duty) = active.take_duty() {
            // The release logs an error itself. The lease then ends the hold.
            let _ = Releasing::of(duty, Some(active.status.clone())).done().await;
        }
    }
}

impl Drop for RenewalTask {
    fn drop(&mut self) {
        if let Some(duty) = self.0.take_duty() {
            self.0.status.set(HoldState::Lost { max_hold: None });
            drop(duty);
        }
    }
}

/// When a hold is verified first. Without change reports it is never verified, only renewed.
fn first_verified(watch: &Watch, lease: Duration, granted_at: Instant) -> Option<Instant> {
    (!watch.is_silent()).then(|| granted_at + FIRST_VERIFIED.min(lease / 3))
}

/// How long after its grant a hold is verified first: longer than most holds last, and a small part
/// of most leases.
const FIRST_VERIFIED: Duration = Duration::from_millis(100);

/// How long after a verification that failed the next one is due. That doubles with each failure in a
/// row, so both a holder and a rival are sure for no longer than the server was down.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
