//! What becomes of failures: of loads, and of the store.

use std::time::Duration;

/// How long the failure of a key is shared, and how often the key is tried meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailureWindows {
    /// The first window, and the longest. A first one of zero: a failure is never shared with later
    /// callers.
    pub(crate) windows: Doubling,
    /// The first cooldown before a probe, and the longest.
    pub(crate) cooldowns: Doubling,
}

/// A time that doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubling {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

/// What follows from one failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailureWindow {
    /// How long it is shared with every caller but the probes. Zero: with none.
    pub(crate) window: Duration,
    /// How long until one caller is let through as a probe.
    pub(crate) cooldown: Duration,
    /// How long it is remembered.
    pub(crate) life: Duration,
}

impl FailureWindows {
    /// What follows from a failure that nothing has confirmed yet: it only counts for the next one.
    pub(crate) fn unconfirmed(&self) -> FailureWindow {
        let life = if self.windows.first.is_zero() { IN_A_ROW } else { self.windows.first };
        FailureWindow { window: Duration::ZERO, cooldown: Duration::ZERO, life }
    }

    /// What follows from a failure that is confirmed, after so many others that were. A probe may
    /// begin at the end of the window and take as long as a load may: the failure is remembered
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
    /// The time after so many others.
    pub(crate) fn after(&self, before: u32) -> Duration {
        let doubled = 1_u32.checked_shl(before.min(31)).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.longest)
    }
}

impl Default for FailureWindows {
    fn default() -> Self {
        Self {
            windows: Doubling { first: Duration::from_secs(1), longest: Duration::from_secs(30) },
            cooldowns: Doubling {
                first: Duration::from_millis(100),
                longest: Duration::from_secs(1),
            },
        }
    }
}

/// How soon after each other failures count as failures in a row where no window is set.
const IN_A_ROW: Duration = Duration::from_secs(1);

/// What a request does when the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenStoreFails {
    /// It loads, together with the other callers of the key in this process, and within the bound on
    /// loads around the store. The default: the store being down is not the service being down.
    #[default]
    Load,
    /// It ends with an error. For loaders that would not survive being asked without a cache.
    Fail,
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let windows = FailureWindows { windows, ..FailureWindows::default() };
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
        let windows = FailureWindows { windows, ..FailureWindows::default() };
        assert_eq!(windows.confirmed(9, Duration::ZERO), windows.unconfirmed());
        assert_eq!(windows.unconfirmed().window, Duration::ZERO);
    }

    fn after(before: u32) -> FailureWindow {
        FailureWindows::default().confirmed(before, Duration::from_secs(30))
    }
}
