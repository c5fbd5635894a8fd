//! Lifetimes of answers, and when they are refreshed.

use std::time::Duration;

use crate::lifetimes::Lifetimes;

/// How long answers are stored and served.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Freshness {
    /// How long an answer is fresh. Zero: waiters share it, and it is not stored.
    pub(crate) ttl: Duration,
    /// Whether the program wants that nothing is stored.
    pub(crate) coalesce_only: bool,
    /// How long an answer that says "there is none" is fresh. Zero: it is not stored.
    pub(crate) not_found_ttl: Duration,
    /// How long after that an answer is served while a load replaces it.
    pub(crate) stale_while_revalidate: Duration,
    /// How long after that an answer is served if a load fails to replace it.
    pub(crate) stale_if_error: Duration,
    /// By which share of itself a ttl is shortened at most.
    pub(crate) jitter: f64,
    /// How early an answer is refreshed, as the beta of XFetch. `None`: never.
    pub(crate) early: Option<f64>,
    /// How long markers live: that the answers for a key are private or cannot be stored.
    pub(crate) marker_ttl: Duration,
}

impl Freshness {
    /// The longest lifetime. Every entry has an end, and longer ones would overflow in some stores.
    pub(crate) const MAX_TTL: Duration = Duration::from_secs(366 * 24 * 60 * 60);

    /// The lifetimes of an answer, jittered by a random number from 0 to 1.
    pub(crate) fn lifetimes(&self, random: f64) -> Lifetimes {
        if self.ttl.is_zero() {
            return Lifetimes::fresh_for(Duration::ZERO);
        }
        self.jittered(
            Lifetimes::fresh_for(self.ttl)
                .stale_while_revalidate(self.stale_while_revalidate)
                .stale_if_error(self.stale_if_error),
            random,
        )
    }

    /// The lifetimes of an answer that says "there is none", jittered by a random number from 0 to
    /// 1.
    pub(crate) fn not_found_lifetimes(&self, random: f64) -> Lifetimes {
        self.jittered(Lifetimes::fresh_for(self.not_found_ttl), random)
    }

    /// The same lifetimes with a ttl that is shortened at random, so that entries stored together
    /// do not expire together. Lifetimes that are jittered already stay.
    pub(crate) fn jittered(&self, lifetimes: Lifetimes, random: f64) -> Lifetimes {
        let share = 1.0 - self.jitter * random.clamp(0.0, 1.0);
        lifetimes.jittered(share, Self::MAX_TTL, self.early.is_some())
    }

    /// Whether to refresh an answer that is fresh for as long as is `left`, by a random number from 0
    /// to 1.
    ///
    /// XFetch: A. Vattani, F. Chierichetti, K. Lowenstein, "Optimal Probabilistic Cache Stampede
    /// Prevention", PVLDB 8 (2015): likelier the longer the load takes and the nearer the end is.
    pub(crate) fn is_due_early(&self, load_time: Duration, left: Duration, random: f64) -> bool {
        let Some(beta) = self.early else { return false };
        let ahead = load_time.as_secs_f64() * beta * -random.max(f64::MIN_POSITIVE).ln();
        ahead >= left.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    const MINUTE: Duration = Duration::from_secs(60);

    fn of(ttl: Duration) -> Freshness {
        Freshness { ttl, ..Policy::default().freshness }
    }

    #[test]
    fn jitter_shortens_and_never_prolongs() {
        for random in [0.0, 0.3, 1.0, -1.0, 2.0] {
            let ttl = of(MINUTE).lifetimes(random).ttl();
            assert!(ttl <= MINUTE && ttl >= MINUTE.mul_f64(0.9), "{ttl:?}");
        }
        assert_eq!(of(MINUTE).lifetimes(0.0).ttl(), MINUTE);
        assert_eq!(of(MINUTE).lifetimes(1.0).ttl(), MINUTE.mul_f64(0.9));
    }

    #[test]
    fn stale_lifetimes_are_not_shortened_and_do_not_prolong_the_ttl() {
        let freshness = Freshness { stale_while_revalidate: MINUTE * 5, ..of(MINUTE) };
        let lifetimes = freshness.lifetimes(1.0);
        assert_eq!(lifetimes.while_revalidate(), MINUTE * 5);
        assert!(lifetimes.ttl() <= MINUTE);
    }

    #[test]
    fn nothing_is_kept_for_longer_than_the_longest_ttl() {
        let lifetimes = Lifetimes::fresh_for(Duration::MAX).stale_if_error(Duration::MAX);
        let lifetimes = of(MINUTE).jittered(lifetimes, 0.0);
        assert_eq!(
            (lifetimes.ttl(), lifetimes.if_error()),
            (Freshness::MAX_TTL, Freshness::MAX_TTL)
        );
    }

    #[test]
    fn nothing_is_loaded_early_unless_asked_for() {
        assert!(!of(MINUTE).is_due_early(MINUTE, Duration::ZERO, 1e-9));
    }

    #[test]
    fn a_load_is_early_in_proportion_to_its_cost() {
        let freshness = Freshness { early: Some(1.0), ..of(MINUTE) };
        let second = Duration::from_secs(1);
        let random = (-1.0_f64).exp();
        assert!(freshness.is_due_early(second, second.mul_f64(0.99), random));
        assert!(!freshness.is_due_early(second, second.mul_f64(1.01), random));
        assert!(!freshness.is_due_early(second, second, 1.0), "the random that is never early");
        assert!(freshness.is_due_early(second, second * 700, 0.0), "the random that always is");
    }
}
