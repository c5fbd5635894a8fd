//! Failures: what is remembered of a load that failed.

use std::sync::Arc;
use std::time::Duration;

use crate::error::FailureCause;

/// A load that failed, as a store remembers it, so that later callers share the failure instead of
/// all loading again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    cause: FailureCause,
    message: Arc<str>,
    times: u32,
    window: Duration,
    cooldown: Duration,
    life: Duration,
}

impl Failure {
    /// The longest message, in bytes.
    pub const MAX_MESSAGE: usize = 256;

    /// A failure that is shared for a window: the load failed for so many times in a row, this one
    /// included. A window of zero shares it with no later caller: it only counts for the next one
    /// in a row. All times are cut to whole milliseconds.
    ///
    /// By default no probe is let through within the window, and the failure is remembered for twice
    /// the window.
    pub fn new(cause: FailureCause, times: u32, window: Duration) -> Self {
        let window = whole_millis(window);
        let life = window.saturating_mul(2);
        Self { cause, message: Arc::from(""), times, window, cooldown: window, life }
    }

    /// The same with a cooldown, after which one caller is let through as a probe. One that is
    /// longer than the window counts as long as that.
    #[must_use]
    pub fn with_cooldown(self, cooldown: Duration) -> Self {
        Self { cooldown: whole_millis(cooldown).min(self.window), ..self }
    }

    /// The same without a window: it only counts for the next one in a row.
    #[must_use]
    pub fn without_window(self) -> Self {
        let zero = Duration::ZERO;
        Self { life: self.counts_for(), window: zero, cooldown: zero, ..self }
    }

    /// The same, remembered for this long. Shorter than the window counts as long as that.
    #[must_use]
    pub fn with_life(self, life: Duration) -> Self {
        Self { life: whole_millis(life).max(self.window), ..self }
    }

    /// With words for people, cut off after 256 bytes. Whoever can read the store can read them.
    #[must_use]
    pub fn with_message(self, message: &str) -> Self {
        let most = Self::MAX_MESSAGE.min(message.len());
        let end = (0..=most).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
        Self { message: Arc::from(&message[..end]), ..self }
    }

    /// Why it failed.
    pub fn cause(&self) -> FailureCause {
        self.cause
    }

    /// Words for people, if there are any.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// How many times in a row it has failed.
    pub fn times(&self) -> u32 {
        self.times
    }

    /// For how long it is shared with every caller but the probes.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// How long until one caller is let through as a probe. A later one may be let through as soon
    /// as that probe has ended without a word.
    pub fn cooldown(&self) -> Duration {
        self.cooldown
    }

    /// For how long it is remembered. While a probe that began within the window still runs, it is
    /// shared for as long as that.
    pub fn life(&self) -> Duration {
        self.life
    }

    /// For how long the next failure is one in a row: for twice the window, so that keys that are
    /// asked for seldom are known to go on failing.
    pub fn counts_for(&self) -> Duration {
        match self.window.is_zero() {
            true => self.life,
            false => self.window.saturating_mul(2).min(self.life),
        }
    }
}

fn whole_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
