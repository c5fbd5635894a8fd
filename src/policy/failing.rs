//! Policy for failures of loads and of the store.

use std::time::Duration;

/// How long the failure of a key is shared, and how often a probe tries the key meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailureWindows {
    /// The first window, and the longest. If the first one is zero, later callers never share a
    /// failure.
    pub(crate) windows: Doubling,
    /// The first cooldown before a probe, and the longest.
    pub(crate) cooldowns: Doubling,
}

/// A duration that doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubling {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

/// The consequences of one failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailureWindow {
    /// How long every caller but a probe shares it. Zero: no later caller does.
    pub(crate) window: Duration,
    /// How long until one caller may probe.
    pub(crate) cooldown: Duration,
    /// How long it is remembered.
    pub(crate) life: Duration,
}

impl FailureWindows {
    /// The consequences of a failure that is not confirmed: only the next one counts it.
    pub(crate) fn unconfirmed(&self) -> FailureWindow {
        let life = if self.windows.first.is_zero() { IN_A_ROW } else { self.windows.first };
        FailureWindow { window: Duration::ZERO, cooldown: Duration::ZERO, life }
    }

    /// The consequences of a confirmed failure, after `before` other confirmed ones. A probe may
    /// begin at the end of the window and take up to `load_timeout`. The failure is remembered
    /// until then, so that no caller waits for that probe.
    pub(crate) fn confirmed(&self, before: u32, load_timeout: Duration) -> FailureWindow {
        let window = self.windows.after(before);
        if window.is_zero() {
            return self.unconfirmed();
        }
        let cooldown = self.cooldowns.after(before).min(window);
        FailureWindow { window, cooldown, life: window.saturating_add(window.max(load_timeout)) }
    }
}

impl Doubling {
    /// The duration after `before` others.
    pub(crate) fn after(&self, before: u32) -> Duration {
        let doubled = 1_u32.checked_shl(before.min(31)).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.longest)
    }
}

/// Within this time failures count as failures in a row, if no window is set.
const IN_A_ROW: Duration = Duration::from_secs(1);

/// What a request does when the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenStoreFails {
    /// It loads. Callers of one key in this process share the load and, over a store that
    /// [goes on without its server](crate::store::OutageStore), its answer.
    /// [`max_loads`](crate::service::ReadThroughLayerBuilder::max_loads) bounds how many loads run, as it
    /// does otherwise. The default, so that the service outlives its store.
    #[default]
    Load,
    /// It ends with an error: the process grants itself no lease. For loaders that cannot take the load without a cache.
    Fail,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn windows_double_up_to_the_longest() {
        let seconds = |before| after(before).window.as_secs();
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(seconds), [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(seconds(u32::MAX), 30);
    }

    #[test]
    fn cooldowns_double_up_to_a_second() {
        let millis = |before| after(before).cooldown.as_millis();
        assert_eq!([0, 1, 2, 3, 4, 5].map(millis), [100, 200, 400, 800, 1_000, 1_000]);
    }

    #[test]
    fn no_cooldown_is_longer_than_its_window() {
        let second = Duration::from_secs(1);
        let windows = Doubling { first: second / 100, longest: second / 50 };
        let windows = FailureWindows { windows, ..Policy::default().failures };
        assert_eq!(windows.confirmed(9, second).cooldown, second / 50);
    }

    #[test]
    fn a_failure_is_remembered_until_a_probe_of_its_window_must_have_ended() {
        assert_eq!(after(0).life, Duration::from_secs(1 + 30));
        assert_eq!(after(9).life, Duration::from_secs(30 + 30));
    }

    #[test]
    fn without_a_first_window_there_is_none() {
        let windows = Doubling { first: Duration::ZERO, longest: Duration::from_secs(1) };
        let windows = FailureWindows { windows, ..Policy::default().failures };
        assert_eq!(windows.confirmed(9, Duration::ZERO), windows.unconfirmed());
        assert_eq!(windows.unconfirmed().window, Duration::ZERO);
    }

    fn after(before: u32) -> FailureWindow {
        Policy::default().failures.confirmed(before, Duration::from_secs(30))
    }
}
