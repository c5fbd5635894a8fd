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

use std::future;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::adapter::warn_throttled;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::context::{LocksContext, ShutdownStage};
use super::deferred_renewal::DeferredHold;
use super::hold::{HoldState, LockHold};
use super::release::{ReleaseDuty, Releasing};
use super::renewal::{Renewal, Verification, valid_until};
use super::{Claim, Renew, Session, Watch};

/// A hold, from its grant to its release.
pub(super) struct ActiveHold {
    hold: Arc<LockHold>,
    granted_at: Instant,
    asked_at: Instant,
    /// Held to take the duty or to copy from it, never across an `.await`.
    duty: Mutex<HolderDuty>,
    /// Notified when the holder releases.
    ended: Notify,
    /// Its index among the [deferred](super::deferred_renewal).
    index: AtomicUsize,
}

struct HolderDuty {
    /// The code that takes this releases the key.
    release: Option<ReleaseDuty>,
    /// Reports changes of the key from before it was asked for.
    watch: Watch,
}

/// The hold is lost. It is released at this instant, unless its holder releases it before.
struct Loss {
    release_at: Option<Instant>,
}

impl ActiveHold {
    /// Sees to it that a hold is renewed when it is due.
    pub(super) fn begin(
        hold: Arc<LockHold>,
        duty: ReleaseDuty,
        asked_at: Instant,
        watch: Watch,
    ) -> Arc<Self> {
        let granted_at = Instant::now();
        let ReleaseDuty { lease, max_hold, .. } = duty;
        let verified = Verification::first_due(&watch, lease, granted_at);
        let dues = [verified, hold.until(), Some(asked_at + lease / 3)].into_iter().flatten();
        let due = dues.fold(granted_at + max_hold, Instant::min);
        let context = Arc::clone(&duty.context);
        context.counters.note_held();
        let runtime = duty.runtime.clone();
        let is_due = due <= granted_at || hold.session().is_some();
        let active = Arc::new(Self {
            hold,
            granted_at,
            asked_at,
            duty: Mutex::new(HolderDuty { release: Some(duty), watch }),
            ended: Notify::new(),
            index: AtomicUsize::new(usize::MAX),
        });
        if is_due {
            Arc::clone(&active).start_renewal();
            return active;
        }
        context.deferred.add(Arc::clone(&active) as Arc<dyn DeferredHold>, &runtime, due);
        // A shutdown after this check finds the hold among the deferred.
        if *context.stage.borrow() == ShutdownStage::Closed {
            context.deferred.start_all();
        }
        active
    }

    pub(super) fn hold(&self) -> &Arc<LockHold> {
        &self.hold
    }

    /// The release, unless it has begun already.
    pub(super) fn release(&self) -> Option<Releasing> {
        let duty = self.take_duty()?;
        duty.context.deferred.remove(self, duty.runtime.id());
        self.ended.notify_one();
        Some(Releasing::of(duty, &self.hold))
    }

    fn take_duty(&self) -> Option<ReleaseDuty> {
        let duty = self.duty().release.take()?;
        duty.context.counters.note_released();
        Some(duty)
    }

    /// Marks the hold as lost, unless it is being released.
    fn lose(&self) -> bool {
        let mut duty = self.duty();
        let Some(release) = &mut duty.release else { return false };
        self.hold.set(HoldState::Lost);
        let permit = release.permit.take();
        drop(duty);
        // Other callers of this process need not wait for a holder that has lost the key.
        drop(permit);
        true
    }

    fn duty(&self) -> MutexGuard<'_, HolderDuty> {
        // A panic cannot leave it half changed: no user code runs under this mutex.
        self.duty.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeferredHold for ActiveHold {
    fn start_renewal(self: Arc<Self>) {
        let mut duty = self.duty();
        let HolderDuty { release: Some(release), watch } = &mut *duty else { return };
        let task = RenewalTask {
            context: Arc::clone(&release.context),
            claim: release.claim.clone(),
            lease: release.lease,
            longest: self.granted_at + release.max_hold,
            session: self.hold.session().cloned(),
            watch: std::mem::replace(watch, Watch::silent()),
            active: LostOnDrop(Arc::clone(&self)),
        };
        let runtime = release.runtime.clone();
        drop(duty);
        runtime.spawn(task.run());
    }

    fn abandon(&self) {
        if let Some(duty) = self.take_duty() {
            self.hold.set(HoldState::Lost);
            drop(duty);
        }
    }

    fn index(&self) -> &AtomicUsize {
        &self.index
    }
}

/// The end of a runtime drops its renewal tasks. Their holds are lost.
struct LostOnDrop(Arc<ActiveHold>);

impl Drop for LostOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// The renewal task of a hold.
struct RenewalTask {
    context: Arc<LocksContext>,
    claim: Claim,
    lease: Duration,
    longest: Instant,
    session: Option<Session>,
    watch: Watch,
    active: LostOnDrop,
}

impl RenewalTask {
    async fn run(mut self) {
        let active = Arc::clone(&self.active.0);
        let Loss { release_at } = tokio::select! {
            biased;
            () = active.ended.notified() => return,
            loss = self.loss() => loss,
        };
        if !active.lose() {
            return;
        }
        self.context.counters.note_lost();
        warn_throttled!(target: "bellwether::lock", key = %self.claim.key(), "a lock was lost while it was held");
        let mut stage = self.context.stage.subscribe();
        tokio::select! {
            biased;
            () = active.ended.notified() => return,
            () = reached(release_at) => {}
            _ = stage.wait_for(|stage| *stage == ShutdownStage::Closed) => {}
        }
        if let Some(duty) = active.take_duty() {
            // The release logs an error itself. The lease then ends the hold.
            let _ = Releasing::of(duty, &active.hold).done().await;
        }
    }

    /// Renews the hold until it is lost.
    async fn loss(&mut self) -> Loss {
        let Self { context, claim, lease, longest, session, watch, active } = self;
        let ActiveHold { hold, asked_at, granted_at, .. } = &*active.0;
        let mut stage = context.stage.subscribe();
        let mut until = hold.until();
        let mut renewal = Renewal::due(*asked_at + *lease / 3);
        let mut verification = Verification::of(watch, *lease, *granted_at);
        loop {
            tokio::select! {
                biased;
                _ = stage.wait_for(|stage| *stage == ShutdownStage::Closed) => {
                    return Loss { release_at: Some(Instant::now()) };
                }
                () = ended(session) => return Loss { release_at: None },
                () = reached(until) => return Loss { release_at: None },
                () = sleep_until(*longest) => {
                    let release_at = until.unwrap_or_else(|| *longest + *lease);
                    return Loss { release_at: Some(release_at) };
                }
                () = verification.loss(|| context.lock.verify(claim)) => {
                    return Loss { release_at: None };
                }
                (asked_at, renewed) = renewal.next(|| context.lock.renew(claim, *lease)) => {
                    match renewed {
                        Ok(Renew::Lost) => return Loss { release_at: None },
                        Ok(Renew::Held) => {
                            context.counters.note_renewal(true);
                            until = until.map(|_| valid_until(asked_at, *lease));
                            hold.set(HoldState::Held { until });
                            renewal = Renewal::due(asked_at + *lease / 3);
                        }
                        // The lease has not ended: it is renewed again before it does.
                        Err(error) => {
                            context.counters.note_renewal(false);
                            warn_throttled!(target: "bellwether::lock", key = %claim.key(), %error, "a lock was not renewed");
                            renewal = Renewal::due(Instant::now() + *lease / 12);
                        }
                    }
                }
            }
        }
    }
}

async fn ended(session: &mut Option<Session>) {
    match session {
        Some(session) => session.ended().await,
        None => future::pending().await,
    }
}

async fn reached(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => future::pending().await,
    }
}
