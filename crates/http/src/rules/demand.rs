//! What a request demands of a stored response.

use std::time::Duration;

use http::HeaderMap;
use http::header::PRAGMA;

use super::consent::Consent;
use super::directives::Directives;
use super::lists::members;
use super::terms::Defaults;

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
        if directives.is_empty() {
            return Self { no_cache: asks_for_no_cache(headers), consent, ..Self::default() };
        }
        Self {
            consent,
            no_store: directives.has("no-store"),
            no_cache: directives.has("no-cache"),
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

fn asks_for_no_cache(headers: &HeaderMap) -> bool {
    members(headers, &PRAGMA).any(|member| member.eq_ignore_ascii_case(b"no-cache"))
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::super::consent::Credentials;
    use super::super::samples::headers;
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
