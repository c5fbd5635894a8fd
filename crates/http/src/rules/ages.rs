//! Age and freshness lifetime of a response (RFC 9111, sections 4.2.1 to 4.2.3).

use std::time::{Duration, SystemTime};

use http::header::{AGE, DATE, EXPIRES, LAST_MODIFIED};
use http::{HeaderMap, HeaderName};

use super::dates::parse;
use super::directives::{Directives, delta_seconds};
use super::lists::members;

/// The longest heuristic freshness lifetime.
const LONGEST_GUESS: Duration = Duration::from_secs(86_400);

/// When a request was sent and when the head of its response arrived (RFC 9111, section 4.2.3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) request_time: SystemTime,
    pub(crate) response_time: SystemTime,
}

/// The freshness lifetime that a response states, counted from its `Date`. A lifetime that cannot be
/// read is zero.
pub(super) fn explicit(
    directives: &Directives,
    headers: &HeaderMap,
    times: Times,
) -> Option<Duration> {
    let said = directives.seconds("s-maxage").or_else(|| directives.seconds("max-age"));
    said.or_else(|| {
        let expires = headers.contains_key(EXPIRES) && !directives.is_targeted();
        expires.then(|| until_expires(headers, times))
    })
}

fn until_expires(headers: &HeaderMap, times: Times) -> Duration {
    let lines = headers.get_all(EXPIRES).iter();
    let dates = lines.map(|line| line.to_str().ok().and_then(parse));
    let first = dates.min().flatten();
    first.map_or(Duration::ZERO, |expires| since(expires, made(headers, times)))
}

/// The heuristic freshness lifetime (RFC 9111, section 4.2.2): a tenth of the time since
/// `Last-Modified`.
pub(super) fn guessed(headers: &HeaderMap, times: Times) -> Option<Duration> {
    let unchanged = since(made(headers, times), date(headers, &LAST_MODIFIED)?);
    Some((unchanged / 10).min(LONGEST_GUESS))
}

/// The age of a response on arrival (`corrected_initial_age` of RFC 9111, section 4.2.3).
pub(crate) fn on_arrival(headers: &HeaderMap, times: Times) -> Duration {
    // `Date` has whole seconds.
    let answered = times.response_time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let answered = SystemTime::UNIX_EPOCH + Duration::from_secs(answered.as_secs());
    let apparent = since(answered, made(headers, times));
    apparent.max(stated(headers).saturating_add(delay(times)))
}

/// How long the exchange took. The response may have aged during all of it.
fn delay(times: Times) -> Duration {
    since(times.response_time, times.request_time)
}

/// The value of `Age`: the first one if there are several. A value that is not a number of seconds
/// is ignored (RFC 9111, section 5.1).
fn stated(headers: &HeaderMap) -> Duration {
    let first = members(headers, &AGE).next();
    let age = first.and_then(|age| delta_seconds(std::str::from_utf8(age).ok()?));
    age.unwrap_or_default()
}

/// When the origin made the response, by its `Date`.
fn made(headers: &HeaderMap, times: Times) -> SystemTime {
    date(headers, &DATE).unwrap_or(times.response_time)
}

/// The date in a field that has exactly one value.
pub(super) fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next().filter(|_| lines.next().is_none())?;
    parse(first.to_str().ok()?)
}

/// The time since a moment. Zero if that moment is in the future, since clocks differ.
fn since(later: SystemTime, stored_response: SystemTime) -> Duration {
    later.duration_since(stored_response).unwrap_or_default()
}
