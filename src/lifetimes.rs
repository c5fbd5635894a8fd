//! Lifetimes: how long an answer is fresh, stale and stored.

use std::time::Duration;

/// How long an entry is fresh, and how long it may be served after that.
///
/// In whole milliseconds, rounded up. Every stale lifetime begins where the ttl ends (RFC 5861).
///
/// Default: all zero, and the answer is not stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Lifetimes {
    ttl: Duration,
    while_revalidate: Duration,
    if_error: Duration,
    for_validation: Duration,
    is_refreshed_early: bool,
    is_fresh_in_outages: bool,
    is_jittered: bool,
}

impl Lifetimes {
    /// Fresh for `ttl`, then gone.
    pub fn fresh_for(ttl: Duration) -> Self {
        Self { ttl: whole_millis(ttl), ..Self::default() }
    }

    /// After its ttl, it is served for this long while a load replaces it.
    pub fn stale_while_revalidate(self, stale: Duration) -> Self {
        Self { while_revalidate: whole_millis(stale), ..self }
    }

    /// After its ttl, it is served for this long if a load fails to replace it.
    pub fn stale_if_error(self, stale: Duration) -> Self {
        Self { if_error: whole_millis(stale), ..self }
    }

    /// After its ttl, it is stored for this long and not served: a loader that can ask its source
    /// whether the answer is still valid (RFC 9111, section 4.3) finds it by
    /// [`Store::lookup`](crate::store::Store::lookup).
    pub fn kept_for_validation(self, stale: Duration) -> Self {
        Self { for_validation: whole_millis(stale), ..self }
    }

    /// It can be refreshed before it is stale, so a lookup must tell how much longer it is fresh.
    pub fn refreshed_early(self) -> Self {
        Self { is_refreshed_early: true, ..self }
    }

    /// Without an answer of its store, a process keeps it as fresh as it would with one: it is no answer
    /// itself, but says where answers are. Those end by lifetimes of their own.
    pub fn fresh_in_outages(self) -> Self {
        Self { is_fresh_in_outages: true, ..self }
    }

    /// As long as a process without its store keeps it: fresh for at most this long, with the same stale
    /// lifetimes.
    pub(crate) fn capped(self, ttl: Duration) -> Self {
        let ttl = if self.is_fresh_in_outages { self.ttl } else { self.ttl.min(ttl) };
        Self { ttl, ..self }
    }

    /// Not fresh, and served only if a load fails.
    pub(crate) fn only_if_error(self) -> Self {
        Self::default().stale_if_error(self.if_error)
    }

    /// With this share of its ttl, unless that is jittered already, and each of them for at most this long.
    pub(crate) fn jittered(self, share: f64, most: Duration, is_refreshed_early: bool) -> Self {
        if self.is_jittered {
            return self;
        }
        Self {
            ttl: whole_millis(self.ttl.min(most).mul_f64(share)),
            while_revalidate: self.while_revalidate.min(most),
            if_error: self.if_error.min(most),
            for_validation: self.for_validation.min(most),
            is_refreshed_early,
            is_jittered: true,
            ..self
        }
    }

    /// How long it is fresh.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How long after that it is served while a load replaces it.
    pub fn while_revalidate(&self) -> Duration {
        self.while_revalidate
    }

    /// How long after that it is served if a load fails to replace it.
    pub fn if_error(&self) -> Duration {
        self.if_error
    }

    /// How long after that it is stored for a loader that validates it.
    pub fn for_validation(&self) -> Duration {
        self.for_validation
    }

    /// Whether it can be refreshed before it is stale.
    pub fn is_refreshed_early(&self) -> bool {
        self.is_refreshed_early
    }

    /// Whether a process without its store keeps it as fresh as with one.
    pub fn is_fresh_in_outages(&self) -> bool {
        self.is_fresh_in_outages
    }

    /// How long it is stored after its ttl: the longest of its stale lifetimes.
    #[inline]
    pub fn stale(&self) -> Duration {
        self.served_stale().max(self.for_validation)
    }

    /// How long after its ttl it may be served.
    pub(crate) fn served_stale(&self) -> Duration {
        self.while_revalidate.max(self.if_error)
    }

    /// How long it is stored.
    pub fn life(&self) -> Duration {
        self.ttl.saturating_add(self.stale())
    }

    /// Whether a lookup needs the remaining life of an entry to tell if it is usable.
    pub fn need_the_remaining_life(&self) -> bool {
        self.is_refreshed_early || !self.stale().is_zero()
    }
}

pub(crate) fn whole_millis(duration: Duration) -> Duration {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}
