//! Failures: what is remembered of a load that failed.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Cause;

/// A load that failed, as it is remembered for a while so that it is not tried again at once by
/// everybody who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    cause: Cause,
    message: Arc<str>,
    times: u32,
    window: Duration,
}

impl Failure {
    /// The longest message, in bytes.
    pub const MAX_MESSAGE: usize = 256;

    /// A failure to be remembered for a window, counted in whole milliseconds: the load failed for
    /// so many times in a row, this one included.
    pub fn new(cause: Cause, times: u32, window: Duration) -> Self {
        let window = Duration::from_millis(u64::try_from(window.as_millis()).unwrap_or(u64::MAX));
        Self { cause, message: Arc::from(""), times, window }
    }

    /// With words for people, cut off after 256 bytes. Whoever can read the store can read them.
    #[must_use]
    pub fn saying(self, message: &str) -> Self {
        let most = Self::MAX_MESSAGE.min(message.len());
        let end = (0..=most).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
        Self { message: Arc::from(&message[..end]), ..self }
    }

    /// Why it failed.
    pub fn cause(&self) -> Cause {
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

    /// For how long nobody is to try again.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// For how long it is remembered: as long again as its window, so that the next failure is
    /// known to be one in a row.
    pub fn life(&self) -> Duration {
        self.window.saturating_mul(2)
    }
}
