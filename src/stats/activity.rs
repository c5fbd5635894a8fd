//! What is under way in a layer at this moment: read where it is, and not counted.

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

/// What can say what is under way in it. Layers with other codecs may share the name.
pub(crate) trait Activity: Send + Sync {
    fn add_to(&self, current: &mut CurrentStats);
}
