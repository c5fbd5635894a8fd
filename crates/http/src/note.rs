//! `Note`: what is stored beside a response.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bellwether::Lifetimes;
use serde::{Deserialize, Serialize};

use super::rules::{Consent, StaleWindows};

/// What is stored beside a response, to compute its age and freshness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// When it was received, in milliseconds since the Unix epoch.
    received: u64,
    /// Its age when it was received, in milliseconds.
    age: u64,
    /// How much longer it was fresh when it was received, in milliseconds.
    fresh: u64,
    /// How explicitly the response permits sharing.
    pub(super) consent: Consent,
    /// For a variant: the last expiry of the variants of its target when it was loaded. Otherwise 0.
    pub(super) last_expiry: u64,
    /// Its stale windows, in milliseconds.
    while_revalidate: u64,
    if_error: u64,
}

impl Note {
    /// `age` and `fresh` are those when it was received.
    pub(super) fn new(
        received: SystemTime,
        (age, fresh): (Duration, Duration),
        consent: Consent,
        last_expiry: u64,
        stale: StaleWindows,
    ) -> Self {
        Self {
            received: since_epoch(received),
            age: millis(age),
            fresh: millis(fresh),
            consent,
            last_expiry,
            while_revalidate: millis(stale.while_revalidate),
            if_error: millis(stale.if_error),
        }
    }

    /// The stale windows that it had when it was received.
    pub(super) fn windows(&self) -> Lifetimes {
        Lifetimes::NONE
            .stale_while_revalidate(Duration::from_millis(self.while_revalidate))
            .stale_if_error(Duration::from_millis(self.if_error))
    }

    /// The age of the response. If the clock was set back, it is the age on arrival.
    pub(super) fn age(&self) -> Duration {
        Duration::from_millis(self.age).saturating_add(self.resident())
    }

    /// How much longer it is fresh, by the freshness lifetime that it had on arrival.
    pub(super) fn fresh_for(&self) -> Option<Duration> {
        Duration::from_millis(self.fresh).checked_sub(self.resident())
    }

    fn resident(&self) -> Duration {
        since(self.received)
    }
}

/// A time, in milliseconds since the Unix epoch.
pub(super) fn since_epoch(time: SystemTime) -> u64 {
    millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// How long ago a time was, given in milliseconds since the Unix epoch. Zero if the clock was set
/// back.
fn since(then: u64) -> Duration {
    let then = UNIX_EPOCH.checked_add(Duration::from_millis(then));
    then.and_then(|then| SystemTime::now().duration_since(then).ok()).unwrap_or_default()
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
