//! Young holds: those that need nothing yet. Most holds are released before, and cost no task.
//!
//! One task for each runtime wakes when the first of its holds has something to do, and starts the
//! renewal task of that hold. It ends when it finds none.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slab::Slab;
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::keeper::{Keepers, Keeping};

/// The holds of one [`Locks`](super::Locks) that have no renewal task yet.
#[derive(Default)]
pub(super) struct Young {
    /// Guards the tables: held for a few steps in one of them, never across an `.await`.
    of_runtimes: Mutex<Vec<OfRuntime>>,
}

/// Those that were taken in one runtime.
struct OfRuntime {
    runtime: Id,
    holds: Slab<(Instant, Arc<Keeping>)>,
    wakes_at: Instant,
    wake: Arc<Notify>,
}

impl Young {
    /// Starts the renewal task of a hold when it is due, if it is still held then.
    pub(super) fn add(
        keepers: &Arc<Keepers>,
        keeping: &Arc<Keeping>,
        runtime: &Handle,
        due: Instant,
    ) {
        let id = runtime.id();
        let hold = (due, Arc::clone(keeping));
        let mut all = keepers.young.lock();
        let known = all.iter_mut().find(|it| it.runtime == id);
        let Some(ours) = known else {
            let wake = Arc::new(Notify::new());
            let mut holds = Slab::new();
            keeping.index.store(holds.insert(hold), Ordering::Relaxed);
            let minder =
                Minder { keepers: Arc::clone(keepers), runtime: id, wake: Arc::clone(&wake) };
            all.push(OfRuntime { runtime: id, holds, wakes_at: due, wake });
            drop(all);
            // Not before: a runtime that has ended drops the task at once.
            runtime.spawn(minder.run());
            return;
        };
        keeping.index.store(ours.holds.insert(hold), Ordering::Relaxed);
        if due < ours.wakes_at {
            ours.wakes_at = due;
            ours.wake.notify_one();
        }
    }

    /// Forgets a hold, if it is there.
    pub(super) fn remove(&self, keeping: &Keeping, runtime: Id) {
        let index = keeping.index.load(Ordering::Relaxed);
        let mut all = self.lock();
        let Some(ours) = all.iter_mut().find(|it| it.runtime == runtime) else { return };
        // Its place may be another's by now.
        let is_there = ours.holds.get(index).is_some_and(|(_, it)| std::ptr::eq(&**it, keeping));
        let removed = is_there.then(|| ours.holds.remove(index));
        drop(all);
        drop(removed);
    }

    /// Starts the renewal tasks of all.
    pub(super) fn end(&self) {
        let mut all = self.lock();
        let holds: Vec<_> = all.iter_mut().flat_map(|it| std::mem::take(&mut it.holds)).collect();
        drop(all);
        holds.iter().for_each(|(_, (_, keeping))| keeping.keep());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OfRuntime>> {
        // A table whose holder panicked is still whole: no user code runs under the lock.
        self.of_runtimes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the young holds of one runtime to be due.
struct Minder {
    keepers: Arc<Keepers>,
    runtime: Id,
    wake: Arc<Notify>,
}

impl Minder {
    async fn run(self) {
        while let Some(wakes_at) = self.start_due() {
            tokio::select! {
                () = sleep_until(wakes_at) => {}
                () = self.wake.notified() => {}
            }
        }
    }

    /// Starts the renewal tasks that are due, and says when the next one is. Without any, the table is
    /// gone.
    fn start_due(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut all = self.keepers.young.lock();
        let at = all.iter().position(|it| self.is_for(it))?;
        let holds = &mut all[at].holds;
        let due: Vec<_> = holds.iter().filter(|(_, (due, _))| *due <= now).map(|it| it.0).collect();
        let due: Vec<_> = due.into_iter().map(|index| holds.remove(index)).collect();
        let wakes_at = holds.iter().map(|(_, (due, _))| *due).min();
        match wakes_at {
            Some(wakes_at) => all[at].wakes_at = wakes_at,
            None => drop(all.swap_remove(at)),
        }
        drop(all);
        due.iter().for_each(|(_, keeping)| keeping.keep());
        wakes_at
    }

    fn is_for(&self, table: &OfRuntime) -> bool {
        table.runtime == self.runtime && Arc::ptr_eq(&table.wake, &self.wake)
    }
}

/// With holds left, it is dropped by a runtime that ends: nothing keeps them any more.
impl Drop for Minder {
    fn drop(&mut self) {
        let mut all = self.keepers.young.lock();
        let Some(at) = all.iter().position(|it| self.is_for(it)) else { return };
        let left = all.swap_remove(at);
        drop(all);
        left.holds.iter().for_each(|(_, (_, keeping))| keeping.forsake());
    }
}
