//! Keepers: what was granted to a claim, until it is released, and the task that renews it.
//!
//! ```text
//! young ──released, dropped────────────► Release
//!   └─due► Keep ──released, dropped────► Release
//!            └────lost► wait for its end ► Release
//! ```
//!
//! A young hold has no task of its own: [`Young`] starts one when there is something to do. Whoever
//! takes the [`Claimed`] out of a [`Keeping`] releases it, so it is released once.

use std::future;
use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::adapter::warn_throttled;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::drift::dependable;
use super::gates::Gates;
use super::held::{Hold, State};
use super::release::{Claimed, Releasing};
use super::renewal::{Hearing, Renewal};
use super::young::Young;
use super::{Claim, Lock, Renew, Session, Watch};

/// Whether locks are still given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Open,
    /// No new ones.
    Closing,
    /// And those that are held are taken away.
    Closed,
}

/// What all claims of one [`Locks`](super::Locks) have in common.
pub(super) struct Keepers {
    pub(super) lock: Arc<dyn Lock>,
    pub(super) gates: Gates,
    pub(super) stage: watch::Sender<Stage>,
    pub(super) young: Young,
    /// How many claims are asked for, held or being released.
    count: AtomicUsize,
    /// Rung when there is none.
    none: Notify,
}

impl Keepers {
    pub(super) fn new(lock: Arc<dyn Lock>) -> Self {
        Self {
            lock,
            gates: Gates::default(),
            stage: watch::Sender::new(Stage::Open),
            young: Young::default(),
            count: AtomicUsize::new(0),
            none: Notify::new(),
        }
    }

    /// One claim more, for as long as what this gives is there.
    pub(super) fn counted(self: &Arc<Self>) -> Counted {
        self.count.fetch_add(1, Ordering::AcqRel);
        Counted(Arc::clone(self))
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Waits until there is no claim.
    pub(super) async fn ended(&self) {
        loop {
            let mut none = pin!(self.none.notified());
            // Before it looks: the last one that goes after that rings.
            none.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            none.await;
        }
    }
}

/// Counts a claim as long as it is there.
pub(super) struct Counted(Arc<Keepers>);

impl Deref for Counted {
    type Target = Arc<Keepers>;

    fn deref(&self) -> &Arc<Keepers> {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none.notify_waiters();
        }
    }
}

/// A hold, from its grant to its release.
pub(super) struct Keeping {
    hold: Arc<Hold>,
    granted_at: Instant,
    asked_at: Instant,
    /// Guards the duty to release it: held to take it or to copy from it, never across an `.await`.
    kept: Mutex<Kept>,
    /// Rung when its holder has gone.
    ended: Notify,
    /// Its place among the [`Young`].
    pub(super) index: AtomicUsize,
}

struct Kept {
    /// Whoever takes this releases it.
    claimed: Option<Claimed>,
    /// Tells of the key from before it was asked for.
    watch: Watch,
}

/// Why a hold is lost, and whether it is released although its holder does not say so: then.
struct Loss {
    release_at: Option<Instant>,
}

/// Until when a lease that was asked for then is sure to hold.
pub(super) fn valid_until(asked_at: Instant, lease: Duration) -> Instant {
    asked_at + dependable(lease)
}

impl Keeping {
    /// Sees to it that a hold is renewed when it has to be.
    pub(super) fn begin(
        hold: Arc<Hold>,
        claimed: Claimed,
        asked_at: Instant,
        watch: Watch,
    ) -> Arc<Self> {
        let granted_at = Instant::now();
        let Claimed { lease, max_hold, .. } = claimed;
        let heard = Hearing::first_due(&watch, lease, granted_at);
        let dues = [heard, hold.until(), Some(asked_at + lease / 3)].into_iter().flatten();
        let due = dues.fold(granted_at + max_hold, Instant::min);
        let keepers = Arc::clone(&claimed.keepers);
        let runtime = claimed.runtime.clone();
        let is_due = due <= granted_at || hold.session().is_some();
        let keeping = Arc::new(Self {
            hold,
            granted_at,
            asked_at,
            kept: Mutex::new(Kept { claimed: Some(claimed), watch }),
            ended: Notify::new(),
            index: AtomicUsize::new(usize::MAX),
        });
        if is_due {
            keeping.keep();
            return keeping;
        }
        Young::add(&keepers, &keeping, &runtime, due);
        // A shutdown that comes after this finds it among the others.
        if *keepers.stage.borrow() == Stage::Closed {
            keepers.young.end();
        }
        keeping
    }

    pub(super) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// The release, if it is the caller's to do.
    pub(super) fn release(&self) -> Option<Releasing> {
        let claimed = self.take()?;
        claimed.keepers.young.remove(self, claimed.runtime.id());
        self.ended.notify_one();
        Some(Releasing::of(claimed, &self.hold))
    }

    /// Starts the renewal task, if it is still held.
    pub(super) fn keep(self: &Arc<Self>) {
        let mut kept = self.kept();
        let Kept { claimed: Some(claimed), watch } = &mut *kept else { return };
        let watchdog = Watchdog {
            keepers: Arc::clone(&claimed.keepers),
            claim: claimed.claim.clone(),
            lease: claimed.lease,
            longest: self.granted_at + claimed.max_hold,
            session: self.hold.session().cloned(),
            watch: std::mem::replace(watch, Watch::silent()),
            keeping: Forsaken(Arc::clone(self)),
        };
        let runtime = claimed.runtime.clone();
        drop(kept);
        runtime.spawn(watchdog.run());
    }

    /// Its runtime has ended: nothing renews it, and nothing can be asked.
    pub(super) fn forsake(&self) {
        if let Some(claimed) = self.take() {
            self.hold.set(State::Lost);
            drop(claimed);
        }
    }

    fn take(&self) -> Option<Claimed> {
        self.kept().claimed.take()
    }

    /// Says that it is lost, unless it is being released.
    fn lose(&self) -> bool {
        let mut kept = self.kept();
        let Some(claimed) = &mut kept.claimed else { return false };
        self.hold.set(State::Lost);
        let pass = claimed.pass.take();
        drop(kept);
        // Others of this process need not wait for a holder that does not hold.
        drop(pass);
        true
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // What its holder leaves after a panic is still whole: no user code runs under the lock.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A hold whose renewal task is dropped, with its runtime, is lost.
struct Forsaken(Arc<Keeping>);

impl Drop for Forsaken {
    fn drop(&mut self) {
        self.0.forsake();
    }
}

/// The renewal task of a hold.
struct Watchdog {
    keepers: Arc<Keepers>,
    claim: Claim,
    lease: Duration,
    longest: Instant,
    session: Option<Session>,
    watch: Watch,
    keeping: Forsaken,
}

impl Watchdog {
    async fn run(mut self) {
        let keeping = Arc::clone(&self.keeping.0);
        let Loss { release_at } = tokio::select! {
            biased;
            () = keeping.ended.notified() => return,
            loss = self.loss() => loss,
        };
        if !keeping.lose() {
            return;
        }
        warn_throttled!(key = %self.claim.key(), "a lock was lost while it was held");
        let mut stage = self.keepers.stage.subscribe();
        tokio::select! {
            biased;
            () = keeping.ended.notified() => return,
            () = reached(release_at) => {}
            _ = stage.wait_for(|stage| *stage == Stage::Closed) => {}
        }
        if let Some(claimed) = keeping.take() {
            // An error has been told by the log, and ends with the lease.
            let _ = Releasing::of(claimed, &keeping.hold).done().await;
        }
    }

    /// Renews the hold until it is lost.
    async fn loss(&mut self) -> Loss {
        let Self { keepers, claim, lease, longest, session, watch, keeping } = self;
        let Keeping { hold, asked_at, granted_at, .. } = &*keeping.0;
        let mut stage = keepers.stage.subscribe();
        let mut until = hold.until();
        let mut renewal = Renewal::due(*asked_at + *lease / 3);
        let mut hearing = Hearing::of(watch, *lease, *granted_at);
        loop {
            tokio::select! {
                biased;
                _ = stage.wait_for(|stage| *stage == Stage::Closed) => {
                    return Loss { release_at: Some(Instant::now()) };
                }
                () = ended(session) => return Loss { release_at: None },
                () = reached(until) => return Loss { release_at: None },
                () = sleep_until(*longest) => {
                    let release_at = until.unwrap_or_else(|| *longest + *lease);
                    return Loss { release_at: Some(release_at) };
                }
                () = hearing.loss(|| keepers.lock.verify(claim)) => {
                    return Loss { release_at: None };
                }
                (asked_at, renewed) = renewal.next(|| keepers.lock.renew(claim, *lease)) => {
                    match renewed {
                        Ok(Renew::Lost) => return Loss { release_at: None },
                        Ok(Renew::Held) => {
                            until = until.map(|_| valid_until(asked_at, *lease));
                            hold.set(State::Held { until });
                            renewal = Renewal::due(asked_at + *lease / 3);
                        }
                        // It still holds; the next try is soon enough to save it.
                        Err(error) => {
                            warn_throttled!(key = %claim.key(), %error, "a lock was not renewed");
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
