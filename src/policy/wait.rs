//! `Wait`: how long a waiter waits, and what it does then.

use std::time::Duration;

/// How long a caller waits for the load of another caller, and what it does then.
///
/// The caller whose own load runs waits for it up to the
/// [limit on one load](crate::service::ReadThroughLayerBuilder::load_timeout), unless the caller has a
/// [deadline](crate::service::Lookup::deadline). No caller waits when the value is there.
///
/// ```
/// use std::time::Duration;
/// use bellwether::Wait;
///
/// let patient = Wait::at_most(Duration::from_secs(5));
/// let brisk = Wait::tries(3, Duration::from_millis(50)).then_load();
/// let hasty = Wait::fail_fast();
/// # let _ = (patient, brisk, hasty);
/// ```
///
/// The default is [`Wait::for_load`], then an error: a load under way is no failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wait {
    /// As long as a load may take, if there is none.
    limit: Option<Duration>,
    pub(crate) interval: Option<Duration>,
    pub(crate) then: AfterWait,
}

impl Wait {
    /// Waits for as long as a load may take: the [limit on one
    /// load](crate::service::ReadThroughLayerBuilder::load_timeout), 30 s by default, and a second more for the
    /// outcome to arrive. If a load runs in this process by then, the caller waits for its end,
    /// which that limit bounds, unless there is a stale answer. The default.
    pub fn for_load() -> Self {
        Self { limit: None, interval: None, then: AfterWait::Fail }
    }

    /// Never waits for the load of another caller: gives up when the store says that one runs.
    ///
    /// The caller waits for that answer of the store, which a failing store gives after its
    /// timeout. A [deadline](crate::service::Lookup::deadline) bounds this as well.
    pub fn fail_fast() -> Self {
        Self::at_most(Duration::ZERO)
    }

    /// Reads the store `tries` times, `interval` apart, and gives up then. A push message of the
    /// store wakes the caller in between. An interval below 1 ms counts as 1 ms.
    pub fn tries(tries: u32, interval: Duration) -> Self {
        let interval = interval.max(Duration::from_millis(1));
        Self { interval: Some(interval), ..Self::at_most(interval.saturating_mul(tries)) }
    }

    /// Waits this long at most, including the time that the store takes to answer.
    pub fn at_most(limit: Duration) -> Self {
        Self { limit: Some(limit), ..Self::for_load() }
    }

    /// After giving up, calls the loader itself, without a lease and without storing the answer.
    ///
    /// Callers of one process that give up on a key share such a load, so there is at most one at
    /// a time per process and key.
    #[must_use]
    pub fn then_load(self) -> Self {
        Self { then: AfterWait::Load, ..self }
    }

    /// How long it waits, if a load may take `load`.
    pub(crate) fn max_wait(&self, load: Duration) -> Duration {
        self.limit.unwrap_or(load)
    }

    pub(crate) fn is_for_load(&self) -> bool {
        self.limit.is_none()
    }

    pub(crate) fn is_fail_fast(&self) -> bool {
        self.limit == Some(Duration::ZERO)
    }
}

impl Default for Wait {
    fn default() -> Self {
        Self::for_load()
    }
}

/// What a caller does when its wait has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AfterWait {
    Fail,
    Load,
}
