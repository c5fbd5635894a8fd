//! Deferred renewals: a hold gets its own renewal task only when it has been held for a while. Most
//! holds are released before, and cost no task.
//!
//! One task per runtime starts the renewal tasks when they are due. It ends when it has had no hold for
//! a while, so that not every short hold starts it.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::adapter::locked;
use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, sleep_until};

use super::runtime_waker::RuntimeWaker;

/// When a hold is due, and its address.
pub(super) type DeferredKey = (Instant, usize);

/// Starts the renewal task of a hold. If it is dropped instead, the hold is lost.
type DeferredStart = Box<dyn FnOnce() + Send>;

/// The holds of one [`Locks`](super::Locks) that have no renewal task yet.
#[derive(Default)]
pub(super) struct DeferredRenewals {
    /// Those of each runtime that has a starter. Held for a few steps in one of the tables, never
    /// across an `.await`.
    of_runtimes: Mutex<HashMap<Id, BTreeMap<DeferredKey, DeferredStart>>>,
}

impl DeferredRenewals {
    /// Starts the renewal task of a hold when it is due, if it is not removed before. All are deferred
    /// for the same time.
    pub(super) fn add(
        self: &Arc<Self>,
        key: DeferredKey,
        deferral: Duration,
        runtime: &Handle,
        start: impl FnOnce() + Send + 'static,
    ) {
        let id = runtime.id();
        let mut all = locked(&self.of_runtimes);
        let has_starter = all.contains_key(&id);
        all.entry(id).or_default().insert(key, Box::new(start));
        drop(all);
        if !has_starter {
            let all = Arc::clone(self);
            let starter =
                RenewalStarter { all, runtime: id, deferral, is_idle: false, ends: false };
            RuntimeWaker::spawn(runtime, starter.run());
        }
    }

    /// Forgets a hold, if it is in the table.
    pub(super) fn remove(&self, key: DeferredKey, runtime: Id) {
        let mut all = locked(&self.of_runtimes);
        let removed = all.get_mut(&runtime).and_then(|holds| holds.remove(&key));
        drop(all);
        drop(removed);
    }
}

/// Starts the renewal tasks of one runtime when they are due.
struct RenewalStarter {
    all: Arc<DeferredRenewals>,
    runtime: Id,
    deferral: Duration,
    /// Whether it had no hold when it looked last.
    is_idle: bool,
    /// Whether it has removed its table.
    ends: bool,
}

impl RenewalStarter {
    /// It is not woken for a new hold, which is due later than all others: it looks again before that.
    async fn run(mut self) {
        while let Some(wakes_at) = self.start_due() {
            sleep_until(wakes_at).await;
        }
    }

    /// Starts the renewal tasks that are due, and returns when to look again. If none was left twice in
    /// a row, this removes the table of the runtime.
    fn start_due(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut all = locked(&self.all.of_runtimes);
        let holds = all.get_mut(&self.runtime)?;
        let later = holds.split_off(&(now, usize::MAX));
        let due = mem::replace(holds, later);
        let next = holds.first_key_value().map(|((due, _), _)| *due);
        self.ends = next.is_none() && mem::replace(&mut self.is_idle, next.is_none());
        if self.ends {
            all.remove(&self.runtime);
        }
        drop(all);
        due.into_values().for_each(|start| start());
        (!self.ends).then(|| next.unwrap_or(now + self.deferral))
    }
}

/// A runtime that ends drops this task. Nothing renews the holds that it still has.
impl Drop for RenewalStarter {
    fn drop(&mut self) {
        if !self.ends {
            let left = locked(&self.all.of_runtimes).remove(&self.runtime);
            drop(left);
        }
    }
}
