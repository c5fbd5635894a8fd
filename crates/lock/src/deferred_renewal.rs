//! Deferred renewals: a hold gets its own renewal task only when its first renewal is due. Most
//! holds are released before, and cost no task.
//!
//! One task per runtime sleeps until the first of its holds is due, and starts the renewal task of
//! that hold. It ends when it has had no hold for a while, so that not every short hold starts it.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slab::Slab;
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// A hold whose renewal task has not been started.
pub(super) trait DeferredHold: Send + Sync {
    /// Starts the renewal task, if the hold is still held.
    fn start_renewal(self: Arc<Self>);

    /// Marks the hold as lost: its runtime has ended, so nothing renews it.
    fn abandon(&self);

    /// Its index in the table.
    fn index(&self) -> &AtomicUsize;
}

/// The holds of one [`Locks`](super::Locks) that have no renewal task yet.
#[derive(Default)]
pub(super) struct DeferredRenewals {
    /// Held for a few steps in one of the tables, never across an `.await`.
    of_runtimes: Mutex<Vec<OfRuntime>>,
}

/// The holds that were taken in one runtime.
struct OfRuntime {
    runtime: Id,
    holds: Slab<(Instant, Arc<dyn DeferredHold>)>,
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
        due: Instant,
    ) {
        let id = runtime.id();
        let mut all = self.lock();
        let known = all.iter_mut().find(|it| it.runtime == id);
        let Some(ours) = known else {
            let wake = Arc::new(Notify::new());
            let mut holds = Slab::new();
            insert(&mut holds, due, hold);
            let starter =
                RenewalStarter { all: Arc::clone(self), runtime: id, wake: Arc::clone(&wake) };
            all.push(OfRuntime { runtime: id, holds, wakes_at: due, is_idle: false, wake });
            drop(all);
            // Spawned last: a runtime that has ended drops the task at once, which locks the table.
            runtime.spawn(starter.run());
            return;
        };
        insert(&mut ours.holds, due, hold);
        ours.is_idle = false;
        if due < ours.wakes_at {
            ours.wakes_at = due;
            ours.wake.notify_one();
        }
    }

    /// Forgets a hold, if it is in the table.
    pub(super) fn remove(&self, hold: &dyn DeferredHold, runtime: Id) {
        let index = hold.index().load(Ordering::Relaxed);
        let mut all = self.lock();
        let Some(ours) = all.iter_mut().find(|it| it.runtime == runtime) else { return };
        // Another hold may have the index by now.
        let entry = ours.holds.get(index);
        let is_there =
            entry.is_some_and(|(_, it)| ptr::addr_eq(ptr::from_ref(&**it), ptr::from_ref(hold)));
        let removed = is_there.then(|| ours.holds.remove(index));
        drop(all);
        drop(removed);
    }

    /// Starts the renewal tasks of all holds now, so that they notice a shutdown.
    pub(super) fn start_all(&self) {
        let mut all = self.lock();
        let holds: Vec<_> = all.iter_mut().flat_map(|it| std::mem::take(&mut it.holds)).collect();
        drop(all);
        holds.into_iter().for_each(|(_, (_, hold))| hold.start_renewal());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OfRuntime>> {
        // A panic cannot leave a table half changed: no user code runs under this mutex.
        self.of_runtimes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn insert(
    holds: &mut Slab<(Instant, Arc<dyn DeferredHold>)>,
    due: Instant,
    hold: Arc<dyn DeferredHold>,
) {
    let entry = holds.vacant_entry();
    hold.index().store(entry.key(), Ordering::Relaxed);
    entry.insert((due, hold));
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
        let mut all = self.all.lock();
        let at = all.iter().position(|it| self.is_for(it))?;
        let ours = &mut all[at];
        let is_due = |(_, (due, _)): &(usize, &(Instant, _))| *due <= now;
        let due: Vec<_> = ours.holds.iter().filter(is_due).map(|it| it.0).collect();
        let due: Vec<_> = due.into_iter().map(|index| ours.holds.remove(index)).collect();
        let first = ours.holds.iter().map(|(_, (due, _))| *due).min();
        let ends = first.is_none() && ours.is_idle;
        ours.is_idle = first.is_none();
        ours.wakes_at = first.unwrap_or(now + IDLE);
        let wakes_at = ours.wakes_at;
        if ends {
            all.swap_remove(at);
        }
        drop(all);
        due.into_iter().for_each(|(_, hold)| hold.start_renewal());
        (!ends).then_some(wakes_at)
    }

    fn is_for(&self, table: &OfRuntime) -> bool {
        table.runtime == self.runtime && Arc::ptr_eq(&table.wake, &self.wake)
    }
}

/// A runtime that ends drops this task. Nothing renews the holds that it still has.
impl Drop for RenewalStarter {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        let Some(at) = all.iter().position(|it| self.is_for(it)) else { return };
        let left = all.swap_remove(at);
        drop(all);
        left.holds.iter().for_each(|(_, (_, hold))| hold.abandon());
    }
}

/// How long the task waits for another hold when it has none.
const IDLE: Duration = Duration::from_millis(50);
