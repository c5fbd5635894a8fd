//! What is under way in a layer at this moment: read where it is, and not counted.

use crate::locked::locked;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

/// What is under way in a layer and all its services at this moment. These figures rise and fall;
/// [`LoadStats::running`](super::LoadStats::running) says how many loads run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CurrentStats {
    /// Flights: keys that this process loads, or whose load in another process it waits for, at most
    /// [`max_flights`](crate::ReadThroughLayer::max_flights) of each kind. Uncached loads and forced
    /// refreshes have flights of their own.
    pub flights: u64,
    /// Callers that wait in these flights. A caller that opened one is among them.
    pub waiters: u64,
    /// Uncached loads that wait because
    /// [`max_uncached_loads`](crate::ReadThroughLayer::max_uncached_loads) run.
    pub queued_loads: u64,
    /// Keys whose last loads have failed, as far as this process remembers: callers share the failure
    /// or get a stale answer, and now and then one of them may load.
    pub failing_keys: u64,
}

/// What can say what is under way in it.
pub(crate) trait Activity: Send + Sync {
    fn read(&self) -> CurrentStats;
}

/// All that is under way under one name. Layers with other codecs may share the name.
#[derive(Default)]
pub(super) struct Activities(
    /// Held to add one or to list them, never across an `.await`.
    Mutex<Vec<Weak<dyn Activity>>>,
);

impl Activities {
    /// Reads this one, too, for as long as it is there.
    pub(super) fn add(&self, activity: &Arc<dyn Activity>) {
        let mut known = locked(&self.0);
        known.retain(|known| known.strong_count() > 0);
        let activity = Arc::downgrade(activity);
        if !known.iter().any(|known| known.ptr_eq(&activity)) {
            known.push(activity);
        }
    }

    /// What is under way in all of them.
    pub(super) fn read(&self) -> CurrentStats {
        let known: Vec<_> = locked(&self.0).iter().filter_map(Weak::upgrade).collect();
        known.iter().map(|activity| activity.read()).fold(CurrentStats::default(), |sum, one| {
            CurrentStats {
                flights: sum.flights + one.flights,
                waiters: sum.waiters + one.waiters,
                queued_loads: sum.queued_loads + one.queued_loads,
                failing_keys: sum.failing_keys + one.failing_keys,
            }
        })
    }
}

impl fmt::Debug for Activities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Activities").field(&self.read()).finish()
    }
}
