//! For how long a response is of use, and whether it may be shared (RFC 9111, section 4.2, and RFC
//! 5861).

use std::time::Duration;

use bellwether::Lifetimes;
use http::{HeaderMap, HeaderName, StatusCode};

use super::ages::{self, Times};
use super::consent::{Consent, Credentials};
use super::directives::Directives;
use super::validation::has_validator;

/// How long a stale response is stored for validation: a day.
const KEPT_FOR_VALIDATION: Duration = Duration::from_secs(86_400);

/// Statuses that are heuristically cacheable (RFC 9110, section 15.1), without 206, as parts are not
/// stored.
const HEURISTICALLY_CACHEABLE: [u16; 11] = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501];

/// For how long a response is stored, and for which requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// For how long it is fresh, counted from its arrival, and then stored. With a ttl of zero it is
    /// stale at once.
    pub(crate) lifetimes: Lifetimes,
    /// How long it is served stale. That in `lifetimes` may be longer, for an origin that gives no answer.
    pub(crate) stale: StaleWindows,
    /// Its age on arrival.
    pub(crate) age: Duration,
    /// Its selecting header fields, sorted and without duplicates.
    pub(crate) vary: Vec<HeaderName>,
    /// How explicitly it permits sharing.
    pub(crate) consent: Consent,
    /// Whether it is fresh without stating a lifetime.
    pub(crate) is_guessed: bool,
}

impl Terms {
    /// The terms of a response that does not vary, and states its lifetime.
    pub(crate) fn new(
        freshness: Duration,
        age: Duration,
        stale: StaleWindows,
        consent: Consent,
    ) -> Self {
        let lifetimes = Lifetimes::fresh_for(freshness)
            .stale_while_revalidate(stale.while_revalidate)
            .stale_if_error(stale.if_error.max(stale.if_disconnected));
        Self { lifetimes, stale, age, vary: Vec::new(), consent, is_guessed: false }
    }

    /// The terms of a response that is shared with the waiters and not stored.
    pub(crate) fn none() -> Self {
        Self::new(Duration::ZERO, Duration::ZERO, StaleWindows::default(), Consent::Public)
    }

    /// How much longer it is fresh, counted from its arrival.
    pub(crate) fn freshness(&self) -> Duration {
        self.lifetimes.ttl()
    }
}

/// How long a response is served after it has become stale (RFC 5861), counted from then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StaleWindows {
    /// While it is revalidated.
    pub(crate) while_revalidate: Duration,
    /// If the origin fails.
    pub(crate) if_error: Duration,
    /// If the origin gives no answer.
    pub(crate) if_disconnected: Duration,
}

impl StaleWindows {
    pub(crate) fn longest(&self) -> Duration {
        self.while_revalidate.max(self.if_error)
    }
}

/// The options of a layer that goes by what responses state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Defaults {
    /// The freshness lifetime if none is stated and none can be guessed.
    pub(crate) ttl: Option<Duration>,
    /// Those of a response that was fresh at some time.
    pub(crate) stale: StaleWindows,
    /// Whether requests with cookies share only responses that say `public` or `s-maxage`.
    pub(crate) needs_public: bool,
    /// Whether `CDN-Cache-Control` overrides `Cache-Control`.
    pub(crate) follows_cdn: bool,
    /// Whether `Cache-Control` and `Pragma` of requests are ignored.
    pub(crate) ignores_request_cache_control: bool,
    pub(crate) credentials: Credentials,
}

/// The terms of a response, without its selecting header fields.
pub(super) fn terms(
    status: StatusCode,
    response: &HeaderMap,
    directives: &Directives,
    times: Times,
    defaults: &Defaults,
) -> Terms {
    let always_validate = directives.has_for_all_fields("no-cache");
    let age = ages::on_arrival(response, times);
    let stated = ages::explicit(directives, response, times);
    let lifetime = stated.or_else(|| unstated(status, response, directives, times, defaults));
    let lifetime = lifetime.filter(|_| !always_validate).unwrap_or_default();
    let stale = stale_windows(directives, lifetime, age, defaults.stale);
    let is_validated = has_validator(status, response);
    let freshness = lifetime.saturating_sub(age);
    let consent = Consent::of(directives, stated.is_some() && !freshness.is_zero());
    let terms = Terms::new(freshness, age, stale, consent);
    let for_validation = if is_validated { KEPT_FOR_VALIDATION } else { Duration::ZERO };
    let lifetimes = terms.lifetimes.kept_for_validation(for_validation);
    let is_guessed = stated.is_none() && !lifetime.is_zero();
    Terms { lifetimes, is_guessed, ..terms }
}

/// The freshness lifetime of a response that states none.
fn unstated(
    status: StatusCode,
    response: &HeaderMap,
    directives: &Directives,
    times: Times,
    defaults: &Defaults,
) -> Option<Duration> {
    let is_cacheable = HEURISTICALLY_CACHEABLE.contains(&status.as_u16());
    ages::guessed(response, times)
        .filter(|_| is_cacheable || directives.has("public"))
        .or_else(|| defaults.ttl.filter(|_| is_cacheable && !status.is_server_error()))
}

/// How long a response is served stale: as it states, or by default.
fn stale_windows(
    directives: &Directives,
    lifetime: Duration,
    age: Duration,
    defaults: StaleWindows,
) -> StaleWindows {
    // RFC 9111, section 4.2.4.
    let forbid = ["must-revalidate", "proxy-revalidate", "s-maxage"];
    if forbid.iter().any(|name| directives.has(name)) || directives.has_for_all_fields("no-cache") {
        return StaleWindows::default();
    }
    // It may have become stale before it arrived.
    let overdue = age.saturating_sub(lifetime);
    let window = |name, default: Duration| {
        let default = if lifetime.is_zero() { Duration::ZERO } else { default };
        directives.seconds(name).unwrap_or(default).saturating_sub(overdue)
    };
    StaleWindows {
        while_revalidate: window("stale-while-revalidate", defaults.while_revalidate),
        if_error: window("stale-if-error", defaults.if_error),
        if_disconnected: if lifetime.is_zero() {
            Duration::ZERO
        } else {
            defaults.if_disconnected.saturating_sub(overdue)
        },
    }
}

#[cfg(test)]
mod tests {

    use super::super::samples::{at_once, headers, now, read};
    use super::super::{PrivateReason, Storing, storing};
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn decide(response: &'static str, defaults: &Defaults) -> Storing {
        let request = headers(&[]);
        let response = read(response);
        storing(&request, StatusCode::OK, &response, at_once(), defaults)
    }

    #[track_caller]
    fn terms_of(response: &'static str, defaults: &Defaults) -> Terms {
        let storing = decide(response, defaults);
        let Storing::Keep(terms) = storing else { panic!("{response:?} is not kept: {storing:?}") };
        terms
    }

    fn stale(response: &'static str, defaults: &Defaults) -> (u64, u64) {
        let terms = terms_of(response, defaults);
        (terms.stale.while_revalidate.as_secs(), terms.stale.if_error.as_secs())
    }

    #[test]
    fn what_came_old_and_slowly_is_fresh_for_less_long() {
        let times = Times { request_time: now() - seconds(4), response_time: now() };
        let response = read("cache-control: max-age=100\nage: 10\ndate: {-12}");
        let answer = storing(&headers(&[]), StatusCode::OK, &response, times, &Defaults::default());
        let Storing::Keep(terms) = answer else { panic!("{answer:?}") };
        assert_eq!((terms.age, terms.freshness()), (seconds(14), seconds(86)));
    }

    #[test]
    fn a_part_of_a_second_ages_nothing() {
        let terms = terms_of("cache-control: max-age=2\ndate: {0}", &Defaults::default());
        assert_eq!((terms.age, terms.freshness()), (Duration::ZERO, seconds(2)));
    }

    #[test]
    fn a_guess_is_a_tenth_and_at_most_a_day() {
        let guess = |response| terms_of(response, &Defaults::default()).freshness();
        assert_eq!(guess("date: {0}\nlast-modified: {-300}"), seconds(30));
        assert_eq!(guess("date: {0}\nlast-modified: {-86400000}"), seconds(86_400));
    }

    #[test]
    fn a_default_time_is_for_those_that_say_nothing() {
        let defaults = Defaults { ttl: Some(seconds(60)), ..Defaults::default() };
        assert_eq!(terms_of("etag: \"a\"", &defaults).freshness(), seconds(60));
        assert_eq!(terms_of("cache-control: max-age=5", &defaults).freshness(), seconds(5));
        let stale = decide("cache-control: max-age=0", &defaults);
        assert_eq!(stale, Storing::Private(PrivateReason::NotFresh));
        assert_eq!(terms_of("age: old", &defaults).freshness(), seconds(60));
    }

    #[test]
    fn a_no_cache_response_is_stored_for_validation_only() {
        let stale = StaleWindows {
            while_revalidate: seconds(9),
            if_error: seconds(9),
            ..StaleWindows::default()
        };
        let defaults = Defaults { stale, ..Defaults::default() };
        let storing = decide("cache-control: max-age=60, no-cache\netag: \"a\"", &defaults);
        let Storing::Validate(terms, PrivateReason::NoCache) = storing else {
            panic!("{storing:?}")
        };
        assert!(terms.lifetimes.for_validation() > Duration::ZERO, "{terms:?}");
        let lifetimes = terms.freshness().max(terms.stale.longest());
        assert_eq!(lifetimes, Duration::ZERO);
        let untagged = decide("cache-control: max-age=60, no-cache", &defaults);
        assert_eq!(untagged, Storing::Private(PrivateReason::NotFresh));
    }

    #[test]
    fn stale_windows_are_what_is_said_or_else_the_defaults() {
        let windows = StaleWindows {
            while_revalidate: seconds(7),
            if_error: seconds(8),
            ..StaleWindows::default()
        };
        let defaults = Defaults { stale: windows, ..Defaults::default() };
        assert_eq!(stale("cache-control: max-age=2", &defaults), (7, 8));
        let said = "cache-control: max-age=2, stale-while-revalidate=0, stale-if-error=60";
        assert_eq!(stale(said, &defaults), (0, 60));
        let never_fresh = "cache-control: max-age=0, stale-while-revalidate=60";
        assert_eq!(stale(never_fresh, &defaults), (60, 0));
        let overdue = "cache-control: max-age=10, stale-if-error=60\nage: 30";
        assert_eq!(stale(overdue, &Defaults::default()), (0, 40));
        for forbids in ["must-revalidate", "proxy-revalidate", "s-maxage=2"] {
            let says = format!("cache-control: max-age=2, stale-if-error=60, {forbids}").leak();
            assert_eq!(stale(says, &defaults), (0, 0), "{forbids}");
        }
    }
}
