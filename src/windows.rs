//! Windows: for how long an answer is good.

use std::time::Duration;

/// For how long an entry is fresh, and for how long it may still be given out after that.
///
/// Counted in whole milliseconds, rounded up. All stale windows begin where the fresh one ends
/// (RFC 5861), and none of them is ever part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    ttl: Duration,
    while_revalidate: Duration,
    if_error: Duration,
    for_validation: Duration,
    is_refreshed_early: bool,
}

impl Windows {
    /// No window at all: it is not kept.
    pub const NONE: Self = Self {
        ttl: Duration::ZERO,
        while_revalidate: Duration::ZERO,
        if_error: Duration::ZERO,
        for_validation: Duration::ZERO,
        is_refreshed_early: false,
    };

    /// Fresh for `ttl`, then gone.
    pub fn fresh_for(ttl: Duration) -> Self {
        Self {
            ttl: whole_millis(ttl),
            while_revalidate: Duration::ZERO,
            if_error: Duration::ZERO,
            for_validation: Duration::ZERO,
            is_refreshed_early: false,
        }
    }

    /// After being fresh, given out for this long while it is loaded anew.
    #[must_use]
    pub fn stale_while_revalidate(self, stale: Duration) -> Self {
        Self { while_revalidate: whole_millis(stale), ..self }
    }

    /// After being fresh, given out for this long if it cannot be loaded anew.
    #[must_use]
    pub fn stale_if_error(self, stale: Duration) -> Self {
        Self { if_error: whole_millis(stale), ..self }
    }

    /// After being fresh, kept for this long and given out to nobody: a loader that can ask its
    /// source whether the answer is still good (RFC 9111, section 4.3) finds it by
    /// [`Store::look`](crate::Store::look).
    #[must_use]
    pub fn kept_for_validation(self, stale: Duration) -> Self {
        Self { for_validation: whole_millis(stale), ..self }
    }

    /// It may be loaded anew before it is stale, so a look has to tell how much longer it is fresh.
    #[must_use]
    pub fn refreshed_early(self) -> Self {
        Self { is_refreshed_early: true, ..self }
    }

    /// How long it is fresh.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How long after that it is given out while it is loaded anew.
    pub fn while_revalidate(&self) -> Duration {
        self.while_revalidate
    }

    /// How long after that it is given out if it cannot be loaded anew.
    pub fn if_error(&self) -> Duration {
        self.if_error
    }

    /// How long after that it is kept for a loader that validates it.
    pub fn for_validation(&self) -> Duration {
        self.for_validation
    }

    /// Whether it may be loaded anew before it is stale.
    pub fn is_refreshed_early(&self) -> bool {
        self.is_refreshed_early
    }

    /// How long it is stale after having been fresh: the longest one of its stale windows.
    #[inline]
    pub fn stale(&self) -> Duration {
        self.given_out().max(self.for_validation)
    }

    /// How long after being fresh it is given out to anybody.
    pub(crate) fn given_out(&self) -> Duration {
        self.while_revalidate.max(self.if_error)
    }

    /// How long it is kept.
    pub fn life(&self) -> Duration {
        self.ttl.saturating_add(self.stale())
    }

    /// Whether it takes what is left of its life to judge an entry.
    pub fn need_the_remaining_life(&self) -> bool {
        self.is_refreshed_early || !self.stale().is_zero()
    }
}

fn whole_millis(duration: Duration) -> Duration {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}
