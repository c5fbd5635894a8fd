//! For how long a response is of use (RFC 9111, section 4.2, and RFC 5861), how explicitly it permits
//! sharing, and what a request demands of a stored one.

use std::sync::Arc;
use std::time::Duration;

use bellwether::Lifetimes;
use http::header::{AUTHORIZATION, COOKIE, PRAGMA, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderName, StatusCode};
use serde::{Deserialize, Serialize};

use super::conditions::has_validator;
use super::dates::{self, Times};
use super::lists::{Directives, members};

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
    /// The fields of a response that are for the caller whose request loaded it, and not stored.
    pub(crate) unstored: Vec<HeaderName>,
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
    let age = dates::on_arrival(response, times);
    let stated = dates::explicit(directives, response, times);
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
    dates::guessed(response, times)
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
    let window = |stated: Option<Duration>, default| {
        let default = if lifetime.is_zero() { Duration::ZERO } else { default };
        stated.unwrap_or(default).saturating_sub(overdue)
    };
    let stated = |name| directives.seconds(name);
    StaleWindows {
        while_revalidate: window(stated("stale-while-revalidate"), defaults.while_revalidate),
        if_error: window(stated("stale-if-error"), defaults.if_error),
        if_disconnected: window(None, defaults.if_disconnected),
    }
}

/// How explicitly a response permits sharing, from the least to the most.
///
/// RFC 9111 demands permission for responses to requests with `Authorization` (section 3.5). Other
/// credentials and cookies identify their sender as well, so requests with one demand it too: a guessed
/// lifetime does not suffice for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Consent {
    /// It states nothing. Its freshness lifetime was guessed, or stated by the program.
    #[default]
    Unsaid,
    /// It states a freshness lifetime, and does not say `private`.
    Timed,
    /// It says `public` or `s-maxage`.
    Public,
}

impl Consent {
    /// The consent of a response. `is_timed`: it states a freshness lifetime.
    pub(super) fn of(directives: &Directives, is_timed: bool) -> Self {
        if ["public", "s-maxage"].iter().any(|name| directives.has(name)) {
            return Self::Public;
        }
        if is_timed { Self::Timed } else { Self::Unsaid }
    }

    /// The consent that a response needs to be shared with a request.
    pub(crate) fn needed_by(
        request: &HeaderMap,
        credentials: &Credentials,
        needs_public: bool,
    ) -> Self {
        match credentials.are_in(request) {
            false => Self::Unsaid,
            true if needs_public && request.contains_key(COOKIE) => Self::Public,
            true => Self::Timed,
        }
    }
}

/// Which request header fields are credentials.
#[derive(Clone, Debug)]
pub(crate) struct Credentials(Arc<[HeaderName]>);

impl Credentials {
    /// These and others.
    pub(crate) fn with(&self, others: impl IntoIterator<Item = HeaderName>) -> Self {
        Self(self.0.iter().cloned().chain(others).collect())
    }

    /// Whether a request has any.
    pub(crate) fn are_in(&self, request: &HeaderMap) -> bool {
        self.are_besides(&[], request)
    }

    /// Whether a request header field is one.
    pub(super) fn contain(&self, name: &HeaderName) -> bool {
        self.0.contains(name)
    }

    /// Whether a request has any besides cookies.
    pub(super) fn authorize(&self, request: &HeaderMap) -> bool {
        self.are_besides(&[COOKIE], request)
    }

    /// Whether a request has any besides these fields.
    pub(crate) fn are_besides(&self, known: &[HeaderName], request: &HeaderMap) -> bool {
        self.0.iter().any(|name| request.contains_key(name) && !known.contains(name))
    }
}

impl Default for Credentials {
    fn default() -> Self {
        let [key, token] = ["x-api-key", "x-auth-token"].map(HeaderName::from_static);
        Self(Arc::new([AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE, key, token]))
    }
}

/// What a request demands of a stored response (RFC 9111, section 5.2.1). `max-stale` is ignored: a
/// caller gets no stale response only because it would accept one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) no_store: bool,
    pub(crate) no_cache: bool,
    pub(crate) max_age: Option<Duration>,
    pub(crate) min_fresh: Option<Duration>,
    pub(crate) only_if_cached: bool,
    /// The consent that a response needs if it was loaded for another request.
    pub(crate) consent: Consent,
}

impl Demand {
    /// Reads `Cache-Control`, and `Pragma` if there is none.
    pub(crate) fn of(headers: &HeaderMap, defaults: &Defaults) -> Self {
        let consent = Consent::needed_by(headers, &defaults.credentials, defaults.needs_public);
        if defaults.ignores_request_cache_control {
            return Self { consent, ..Self::default() };
        }
        let directives = Directives::of(headers);
        let is_no_cache = |member: &[u8]| member.eq_ignore_ascii_case(b"no-cache");
        let pragma = || directives.is_empty() && members(headers, &PRAGMA).any(is_no_cache);
        Self {
            consent,
            no_store: directives.has("no-store"),
            no_cache: directives.has("no-cache") || pragma(),
            max_age: directives.seconds("max-age"),
            min_fresh: directives.seconds("min-fresh"),
            only_if_cached: directives.has("only-if-cached"),
        }
    }

    /// Whether a response that was loaded for another request may be shared with this one.
    pub(crate) fn may_share(&self, consent: Consent) -> bool {
        consent >= self.consent
    }

    /// Whether a response of this age suffices that stays fresh for `fresh_for`, if that is known.
    pub(crate) fn accepts(&self, age: Duration, fresh_for: Option<Duration>) -> bool {
        let is_young = self.max_age.is_none_or(|most| age <= most);
        let is_fresh =
            self.min_fresh.is_none_or(|least| fresh_for.is_some_and(|left| left >= least));
        !self.no_cache && is_young && is_fresh
    }
}

#[cfg(test)]
mod tests_of_terms {

    use super::super::tests::samples::{at_once, headers, now, read};
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

#[cfg(test)]
mod tests_of_demand {
    use http::HeaderName;

    use super::super::terms::Credentials;
    use super::super::tests::samples::headers;
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn of(line: &str) -> Demand {
        Demand::of(&headers(&[("cache-control", line)]), &Defaults::default())
    }

    #[test]
    fn pragma_counts_only_without_cache_control() {
        let pragma = Demand::of(&headers(&[("pragma", "foo, No-Cache")]), &Defaults::default());
        assert!(pragma.no_cache);
        assert!(
            !Demand::of(&headers(&[("pragma", "unrecognised-extension")]), &Defaults::default())
                .no_cache
        );
        let both = headers(&[("pragma", "no-cache"), ("cache-control", "max-age=5")]);
        assert!(!Demand::of(&both, &Defaults::default()).no_cache);
    }

    #[test]
    fn what_a_request_does_not_ask_for_it_does_not_demand() {
        assert_eq!(Demand::of(&headers(&[]), &Defaults::default()), Demand::default());
        assert_eq!(of("max-stale=1000"), Demand::default());
        assert!(of("max-stale=1000").accepts(seconds(1_000_000), None));
    }

    #[test]
    fn credentials_of_any_kind_demand_a_stated_lifetime() {
        let credentials = Credentials::default().with([HeaderName::from_static("x-user")]);
        for (needs_public, with_cookie) in [(false, Consent::Timed), (true, Consent::Public)] {
            let defaults =
                Defaults { needs_public, credentials: credentials.clone(), ..Defaults::default() };
            let demanded = |name| Demand::of(&headers(&[(name, "a=b")]), &defaults).consent;
            for name in ["authorization", "proxy-authorization", "x-api-key", "x-user"] {
                assert_eq!(demanded(name), Consent::Timed, "{name}");
            }
            assert_eq!(demanded("cookie"), with_cookie);
            assert_eq!(demanded("accept"), Consent::Unsaid);
        }
    }

    #[test]
    fn all_directives_are_read() {
        let demand = of("no-store, no-cache, max-age=1, min-fresh=2, only-if-cached");
        let expected = Demand {
            no_store: true,
            no_cache: true,
            max_age: Some(seconds(1)),
            min_fresh: Some(seconds(2)),
            only_if_cached: true,
            ..Demand::default()
        };
        assert_eq!(demand, expected);
    }

    #[test]
    fn an_answer_that_is_too_old_or_not_fresh_for_long_enough_will_not_do() {
        for (line, age, fresh_for, will_do) in [
            ("max-age=600", 600, Some(1), true),
            ("max-age=600", 601, Some(1), false),
            ("max-age=nonsense", 1, Some(1), false),
            ("min-fresh=10", 0, Some(10), true),
            ("min-fresh=10", 0, Some(9), false),
            ("min-fresh=10", 0, None, false),
            ("no-cache", 0, Some(10), false),
        ] {
            let accepts = of(line).accepts(seconds(age), fresh_for.map(seconds));
            assert_eq!(accepts, will_do, "{line} {age} {fresh_for:?}");
        }
    }
}
