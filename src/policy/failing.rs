//! What becomes of failures: of loads, and of the store.

use std::time::Duration;

/// For how long nobody tries again after a load has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailureWindows {
    /// After the first failure. Zero: anybody may try again at once.
    pub(crate) first: Duration,
    /// After many in a row.
    pub(crate) longest: Duration,
}

impl FailureWindows {
    /// The window after one more failure than those before: twice as long each time.
    pub(crate) fn after(&self, before: u32) -> Duration {
        let doubled = 1_u32.checked_shl(before.min(31)).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.longest)
    }
}

impl Default for FailureWindows {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), longest: Duration::from_secs(30) }
    }
}

/// What a request does when the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenStoreFails {
    /// It loads, together with all who want the same key in this process, and within the bound on
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
        let windows = FailureWindows::default();
        let seconds = |before| windows.after(before).as_secs();
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(seconds), [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(seconds(u32::MAX), 30);
    }

    #[test]
    fn without_a_first_window_there_is_none() {
        let windows = FailureWindows { first: Duration::ZERO, ..FailureWindows::default() };
        assert_eq!(windows.after(9), Duration::ZERO);
    }
}
