//! Whether a response is stored (RFC 9111, section 3).

use std::fmt;

use bellwether::codec::Cacheability;
use bellwether_body::UnfinishedReason;
use http::header::{CONTENT_RANGE, CONTENT_TYPE, EXPIRES, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Serialize;

use super::dates::Times;
use super::lists::Directives;
use super::terms::{Consent, Credentials, Defaults, Terms, terms};
use super::vary::nominated;

/// Errors that are never stored: responses to a condition or a range, and those that RFC 6585 excludes.
const NEVER_KEPT: [u16; 6] = [412, 416, 428, 429, 431, 511];

/// Whether a response is stored, and which callers get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Storing {
    /// It is stored, and all waiters get it.
    Keep(Terms),
    /// Only its own caller gets it. It is stored for validation: other callers get it only after
    /// the origin has confirmed it.
    Validate(Terms, PrivateReason),
    /// It is not stored. All waiters get it, or it counts as a failure or as an error that this request may
    /// have caused. Then its own caller gets it, and the waiters ask the origin once more, with the
    /// request of one of them. After a second such error, a few of them ask for themselves, and so do
    /// all with credentials.
    Share(Cacheability),
    /// Only its own caller gets it. An error is replaced by the stale fallback, if there is one.
    Private(PrivateReason),
}

/// Why a response is not stored for all callers. `Display` gives the word, for `Cache-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PrivateReason {
    /// The request has credentials, and the response does not permit sharing.
    Authorization,
    /// The request has a cookie, and the response does not permit sharing.
    Cookie,
    /// Responses with this status are not stored.
    Status,
    /// The same for an error, which the waiters of a request without credentials share.
    #[serde(rename = "status")]
    ErrorStatus,
    /// It is a part of the content only.
    Partial,
    /// `no-store`.
    NoStore,
    /// `no-cache`.
    NoCache,
    /// `private`.
    Private,
    /// It sets a cookie, which is for one client only.
    SetCookie,
    /// `Vary` names `*`, too many fields, cookies or credentials.
    Vary,
    /// It is not fresh, and may not be served stale.
    NotFresh,
    /// It is larger than `max_entry_bytes`.
    TooLarge,
    /// It was not complete in time.
    TooSlow,
    /// The bodies that were read at the same time left no room for it.
    OverBudget,
    /// It is a stream without an end, and states no lifetime.
    Stream,
    /// The responses before it were private, so this one was not loaded for others.
    NotShared,
}

/// Decides whether the response to a GET is stored.
pub(crate) fn storing(
    request: &HeaderMap,
    status: StatusCode,
    response: &HeaderMap,
    times: Times,
    defaults: &Defaults,
) -> Storing {
    let directives = Directives::of_response(response, defaults.follows_cdn);
    if let Some(why) = forbidden_to_others(status, response, &directives) {
        return Storing::Private(why);
    }
    let vary = nominated(response, &defaults.credentials);
    let Some(vary) = vary else { return Storing::Private(PrivateReason::Vary) };
    let terms = Terms { vary, ..terms(status, response, &directives, times, defaults) };
    // Stricter than RFC 9111, section 3.5: many origins mean "never share" by `must-revalidate`.
    let is_for_all = terms.consent == Consent::Public && !terms.is_guessed;
    if !is_for_all && defaults.credentials.authorize(request) {
        return Storing::Private(PrivateReason::Authorization);
    }
    let needed = Consent::needed_by(request, &defaults.credentials, defaults.needs_public);
    if terms.consent < needed {
        return Storing::Private(PrivateReason::Cookie);
    }
    if !terms.freshness().max(terms.stale.longest()).is_zero() {
        return Storing::Keep(terms);
    }
    if terms.lifetimes.for_validation().is_zero() {
        return Storing::Private(PrivateReason::NotFresh);
    }
    if directives.has_for_all_fields("no-cache") {
        return Storing::Validate(terms, PrivateReason::NoCache);
    }
    // The waiters may have a public response without validation, as it is new.
    match directives.has("public") {
        true => Storing::Keep(terms),
        false => Storing::Validate(terms, PrivateReason::NotFresh),
    }
}

/// The request header fields by which a response varies, if it may be shared at all. Its lifetime and
/// the credentials of the request are not considered here.
pub(crate) fn for_others(
    status: StatusCode,
    response: &HeaderMap,
    credentials: &Credentials,
) -> Result<Vec<HeaderName>, PrivateReason> {
    let directives = Directives::of_response(response, false);
    let why = forbidden_to_others(status, response, &directives);
    why.map_or_else(|| nominated(response, credentials).ok_or(PrivateReason::Vary), Err)
}

/// Why the trailers of a response make it private: a client may heed them like header fields.
pub(crate) fn forbidden_by_trailers(trailers: &HeaderMap) -> Option<PrivateReason> {
    forbidden_to_others(StatusCode::OK, trailers, &Directives::of_response(trailers, false))
}

/// Whether its origin must confirm it before each use (`no-cache`).
pub(crate) fn must_be_validated(response: &HeaderMap) -> bool {
    Directives::of_response(response, false).has_for_all_fields("no-cache")
}

/// Why a response must not be given to others, whatever its lifetime and the credentials of its request.
fn forbidden_to_others(
    status: StatusCode,
    response: &HeaderMap,
    directives: &Directives,
) -> Option<PrivateReason> {
    if status == StatusCode::PARTIAL_CONTENT || is_part(response) {
        return Some(PrivateReason::Partial);
    }
    let is_unknown = directives.has("must-understand") && !is_understood(status);
    if status.is_informational() || status == StatusCode::NOT_MODIFIED || is_unknown {
        return Some(PrivateReason::Status);
    }
    if directives.forbid_storing() {
        return Some(PrivateReason::NoStore);
    }
    if directives.has("private") {
        return Some(PrivateReason::Private);
    }
    if response.contains_key(SET_COOKIE) {
        return Some(PrivateReason::SetCookie);
    }
    if NEVER_KEPT.contains(&status.as_u16()) {
        return Some(PrivateReason::ErrorStatus);
    }
    let is_timed = ["max-age", "s-maxage"].iter().any(|name| directives.has(name))
        || response.contains_key(EXPIRES);
    (is_stream(response) && !is_timed).then_some(PrivateReason::Stream)
}

/// Whether a response has a type whose content has no end.
fn is_stream(response: &HeaderMap) -> bool {
    let kind = response.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    ["text/event-stream", "multipart/x-mixed-replace"]
        .iter()
        .any(|stream| kind.eq_ignore_ascii_case(stream))
}

/// A final status of RFC 9110, section 15.
fn is_understood(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200..=205 | 300..=303 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 500..=505)
}

/// Whether a response is a range of bytes. `Content-Range` has a meaning only with statuses that are
/// never stored (RFC 9110, section 14.4); with any other, the content may be incomplete.
fn is_part(response: &HeaderMap) -> bool {
    let lines = response.get_all(CONTENT_RANGE).iter();
    lines
        .map(HeaderValue::as_bytes)
        .any(|range| range.get(..6).is_some_and(|unit| unit.eq_ignore_ascii_case(b"bytes ")))
}

impl From<UnfinishedReason> for PrivateReason {
    fn from(why: UnfinishedReason) -> Self {
        match why {
            UnfinishedReason::TooLarge => Self::TooLarge,
            UnfinishedReason::TooSlow => Self::TooSlow,
            UnfinishedReason::OverBudget => Self::OverBudget,
        }
    }
}

impl fmt::Display for PrivateReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::samples::{at_once, headers, read};
    use super::*;

    fn decide(request: &'static str, response: &'static str) -> Storing {
        let request = read(request);
        let response = read(response);
        storing(&request, StatusCode::OK, &response, at_once(), &Defaults::default())
    }

    #[track_caller]
    fn assert_private(request: &'static str, response: &'static str, why: PrivateReason) {
        let storing = decide(request, response);
        assert_eq!(storing, Storing::Private(why), "{request:?} {response:?}");
    }

    #[test]
    fn credentials_make_an_answer_private_unless_it_says_that_it_is_for_others() {
        const CREDENTIALS: &str = "authorization: Basic YTpi";
        assert_private(CREDENTIALS, "expires: {3600}\ndate: {0}", PrivateReason::Authorization);
        assert_private(CREDENTIALS, "cache-control: max-age=3600", PrivateReason::Authorization);
        const MODIFIED: &str = "last-modified: {-86400}\ndate: {0}";
        for says in ["max-age=3600, must-revalidate", "must-revalidate", "public"] {
            let response = format!("cache-control: {says}\n{MODIFIED}").leak();
            assert_private(CREDENTIALS, response, PrivateReason::Authorization);
        }
        for says in [
            "cache-control: max-age=3600, public",
            "cache-control: max-age=0, public\netag: \"a\"",
            "cache-control: s-maxage=3600",
        ] {
            assert!(matches!(decide(CREDENTIALS, says), Storing::Keep(_)), "{says}");
        }
    }

    #[test]
    fn a_cookie_makes_an_answer_private_unless_it_says_that_it_is_for_others() {
        const CREDENTIALS: &str = "cookie: a=b";
        for says in [
            "last-modified: {-86400}\ndate: {0}",
            "cache-control: no-cache\netag: \"a\"",
            "cache-control: max-age=0\netag: \"a\"",
            "cache-control: must-revalidate\nlast-modified: {-86400}\ndate: {0}",
            "cache-control: stale-while-revalidate=60",
            "expires: {-1}\nlast-modified: {-86400}\ndate: {0}",
        ] {
            assert_private(CREDENTIALS, says, PrivateReason::Cookie);
        }
        for says in [
            "cache-control: public\nlast-modified: {-86400}\ndate: {0}",
            "cache-control: s-maxage=3600",
            "cache-control: max-age=3600",
            "expires: {3600}\ndate: {0}",
        ] {
            assert!(matches!(decide(CREDENTIALS, says), Storing::Keep(_)), "{says}");
        }
        let strict = Defaults { needs_public: true, ..Defaults::default() };
        for (says, is_kept) in [("max-age=60", false), ("public, max-age=60", true)] {
            let request = read(CREDENTIALS);
            let response = headers(&[("cache-control", says)]);
            let storing = storing(&request, StatusCode::OK, &response, at_once(), &strict);
            assert_eq!(matches!(storing, Storing::Keep(_)), is_kept, "{says}");
        }
    }

    #[test]
    fn what_is_never_fresh_is_validated_for_others_unless_it_says_that_it_is_for_all() {
        let validated = decide("", "etag: \"a\"\ncache-control: max-age=0");
        assert!(
            matches!(validated, Storing::Validate(_, PrivateReason::NotFresh)),
            "{validated:?}"
        );
        for says in ["public, max-age=0", "max-age=0, stale-while-revalidate=1"] {
            let kept = decide("", format!("etag: \"a\"\ncache-control: {says}").leak());
            assert!(matches!(kept, Storing::Keep(_)), "{kept:?}");
        }
    }

    #[test]
    fn a_response_that_varies_by_credentials_is_private() {
        for vary in ["vary: *", "vary: Foo, *", "vary: , *", "vary:\nvary: *", "vary: a b"] {
            let response = format!("cache-control: max-age=3600\n{vary}").leak();
            assert_private("", response, PrivateReason::Vary);
        }
        assert_private("", "cache-control: max-age=3600\nvary: Cookie", PrivateReason::Vary);
        assert_private(
            "",
            "cache-control: max-age=3600\nvary: accept, Authorization",
            PrivateReason::Vary,
        );
        assert_private("", "cache-control: max-age=3600\nvary: X-Api-Key", PrivateReason::Vary);
    }
}
