//! Failures: what a store remembers of a failed load.

use std::sync::Arc;
use std::time::Duration;

use crate::error::FailureCause;
use crate::lifetimes::whole_millis;

/// A failed load, as a store remembers it. Later callers are given the failure instead of loading
/// again at once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// Why the load failed.
    pub cause: FailureCause,
    /// The message for people. Empty by default.
    pub message: Arc<str>,
    /// How many loads in a row have failed, including this one.
    pub times: u32,
    /// For how long all callers except probes share it.
    pub window: Duration,
    /// How long until one caller is admitted as a probe. Another one is admitted if that probe ends
    /// with neither an entry nor a failure.
    pub cooldown: Duration,
    /// For how long it is remembered. Callers share it for as long while a probe that began within
    /// the window still runs.
    pub life: Duration,
}

impl Failure {
    /// The maximum length of a message, in bytes.
    pub const MAX_MESSAGE: usize = 256;

    /// A failure that later callers share for a window. `times` counts failures in a row, including
    /// this one. With a window of zero, no caller shares it, and it only counts as one in a row.
    /// All times are in whole milliseconds, rounded up.
    ///
    /// By default no probe is admitted within the window, and the failure is remembered for twice
    /// the window.
    pub fn new(cause: FailureCause, times: u32, window: Duration) -> Self {
        let window = whole_millis(window);
        let life = window.saturating_mul(2);
        Self { cause, message: Arc::from(""), times, window, cooldown: window, life }
    }

    /// Sets the cooldown, after which one caller is admitted as a probe. It is at most as long as
    /// the window.
    #[must_use]
    pub fn with_cooldown(self, cooldown: Duration) -> Self {
        Self { cooldown: whole_millis(cooldown).min(self.window), ..self }
    }

    /// Removes the window: no caller shares the failure, and it only counts as one in a row.
    #[must_use]
    pub fn without_window(self) -> Self {
        let zero = Duration::ZERO;
        Self { life: self.counts_for(), window: zero, cooldown: zero, ..self }
    }

    /// Sets for how long it is remembered: at least as long as the window.
    #[must_use]
    pub fn with_life(self, life: Duration) -> Self {
        Self { life: whole_millis(life).max(self.window), ..self }
    }

    /// Sets a message for people, cut off after 256 bytes. Everyone with read access to the store
    /// can read it.
    #[must_use]
    pub fn with_message(self, message: &str) -> Self {
        let most = Self::MAX_MESSAGE.min(message.len());
        let end = (0..=most).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
        Self { message: Arc::from(&message[..end]), ..self }
    }

    /// For how long the next failure counts as one in a row: for twice the window, at most for its
    /// life. So failures of a rarely requested key add up, too.
    pub fn counts_for(&self) -> Duration {
        match self.window.is_zero() {
            true => self.life,
            false => self.window.saturating_mul(2).min(self.life),
        }
    }
}
