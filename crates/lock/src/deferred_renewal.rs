//! Deferred renewals: a hold gets its own renewal task only when its first renewal is due. Most
//! holds are released before, and cost no task.
//!
//! One task per runtime sleeps until the first of its holds is due, and starts the renewal task of
//! that hold. It ends when it has had no hold for a while, so that not every short hold starts it.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::adapter::locked;
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::runtime_waker::RuntimeWaker;

/// A hold whose renewal task has not been started.
pub(super) trait DeferredHold: Send + Sync {
    /// Starts the renewal task, if the hold is still held.
    fn start_renewal(self: Arc<Self>);

    /// Marks the hold as lost: its runtime has ended, so nothing renews it.
    fn abandon(&self);
}

/// When a hold is due, and its address.
pub(super) type DeferredKey = (Instant, usize);

/// The holds of one [`Locks`](super::Locks) that have no renewal task yet.
#[derive(Default)]
pub(super) struct DeferredRenewals {
    /// Held for a few steps in one of the tables, never across an `.await`.
    of_runtimes: Mutex<Vec<OfRuntime>>,
}

/// The holds that were taken in one runtime.
struct OfRuntime {
    runtime: Id,
    holds: BTreeMap<DeferredKey, Arc<dyn DeferredHold>>,
    wakes_at: Instant,
    /// Whether the task had no hold when it woke, and there was none since.
    is_idle: bool,
    wake: Arc<Notify>,
}

impl DeferredRenewals {
    /// Starts the renewal task of a hold when it is due, if it is still held then.
    pub(super) fn add(
        self: &Arc<Self>,
        hold: Arc<dyn DeferredHold>,
        runtime: &Handle,
        key: DeferredKey,
    ) {
        let id = runtime.id();
        let (due, _) = key;
        let mut all = locked(&self.of_runtimes);
        if let Some(ours) = all.iter_mut().find(|it| it.runtime == id) {
            ours.holds.insert(key, hold);
            ours.is_idle = false;
            if due < ours.wakes_at {
                ours.wakes_at = due;
                ours.wake.notify_one();
            }
            return;
        }
        let wake = Arc::new(Notify::new());
        let starter =
            RenewalStarter { all: Arc::clone(self), runtime: id, wake: Arc::clone(&wake) };
        let holds = BTreeMap::from([(key, hold)]);
        all.push(OfRuntime { runtime: id, holds, wakes_at: due, is_idle: false, wake });
        drop(all);
        // Spawned last: a runtime that has ended drops the task at once, which locks the table.
        RuntimeWaker::spawn(runtime, starter.run());
    }

    /// Forgets a hold, if it is in the table.
    pub(super) fn remove(&self, key: DeferredKey, runtime: Id) {
        let mut all = locked(&self.of_runtimes);
        let ours = all.iter_mut().find(|it| it.runtime == runtime);
        let removed = ours.and_then(|ours| ours.holds.remove(&key));
        drop(all);
        drop(removed);
    }

    /// Starts the renewal tasks of all holds now, so that they notice a shutdown.
    pub(super) fn start_all(&self) {
        let mut all = locked(&self.of_runtimes);
        let holds: Vec<_> = all.iter_mut().flat_map(|it| mem::take(&mut it.holds)).collect();
        drop(all);
        holds.into_iter().for_each(|(_, hold)| hold.start_renewal());
    }
}

/// Starts the renewal tasks of one runtime when they are due.
struct RenewalStarter {
    all: Arc<DeferredRenewals>,
    runtime: Id,
    wake: Arc<Notify>,
}

impl RenewalStarter {
    async fn run(self) {
        while let Some(wakes_at) = self.start_due() {
            tokio::select! {
                () = sleep_until(wakes_at) => {}
                () = self.wake.notified() => {}
            }
        }
    }

    /// Starts the renewal tasks that are due, and returns when to look again. If none was left
    /// twice in a row, this removes the table of the runtime.
    fn start_due(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut all = locked(&self.all.of_runtimes);
        let at = all.iter().position(|it| self.is_for(it))?;
        let ours = &mut all[at];
        let later = ours.holds.split_off(&(now, usize::MAX));
        let due = mem::replace(&mut ours.holds, later);
        let first = ours.holds.first_key_value().map(|((due, _), _)| *due);
        let ends = first.is_none() && ours.is_idle;
        ours.is_idle = first.is_none();
        ours.wakes_at = first.unwrap_or(now + IDLE);
        let wakes_at = ours.wakes_at;
        if ends {
            all.swap_remove(at);
        }
        drop(all);
        due.into_values().for_each(DeferredHold::start_renewal);
        (!ends).then_some(wakes_at)
    }

    fn is_for(&self, table: &OfRuntime) -> bool {
        table.runtime == self.runtime && Arc::ptr_eq(&table.wake, &self.wake)
    }
}

/// A runtime that ends drops this task. Nothing renews the holds that it still has.
impl Drop for RenewalStarter {
    fn drop(&mut self) {
        let mut all = locked(&self.all.of_runtimes);
        let Some(at) = all.iter().position(|it| self.is_for(it)) else { return };
        let left = all.swap_remove(at);
        drop(all);
        left.holds.values().for_each(|hold| hold.abandon());
    }
}

/// How long the task waits for another hold when it has none.
const IDLE: Duration = Duration::from_millis(50);
