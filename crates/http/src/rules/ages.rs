//! How old a response is, and how old it may get (RFC 9111, sections 4.2.1 to 4.2.3).

use std::time::{Duration, SystemTime};

use http::header::{AGE, DATE, EXPIRES, LAST_MODIFIED};
use http::{HeaderMap, HeaderName};

use super::dates::parse;
use super::directives::{Directives, delta_seconds};
use super::lists::members;

/// The longest time for which a guess is made.
const LONGEST_GUESS: Duration = Duration::from_secs(86_400);

/// When an answer was asked for, and when its head was there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) asked: SystemTime,
    pub(crate) answered: SystemTime,
}

/// For how long a response is fresh from when it was made, if its origin says so.
///
/// What is said and cannot be read is no time at all.
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

/// A guess (RFC 9111, section 4.2.2): what has not changed for long will not change soon.
pub(super) fn guessed(headers: &HeaderMap, times: Times) -> Option<Duration> {
    let unchanged = since(made(headers, times), date(headers, &LAST_MODIFIED)?);
    Some((unchanged / 10).min(LONGEST_GUESS))
}

/// How old a response is when it arrives, as far as that can be said.
pub(crate) fn on_arrival(headers: &HeaderMap, times: Times) -> Duration {
    // The clock of the origin tells whole seconds.
    let answered = times.answered.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let answered = SystemTime::UNIX_EPOCH + Duration::from_secs(answered.as_secs());
    let apparent = since(answered, made(headers, times));
    apparent.max(stated(headers).saturating_add(delay(times)))
}

/// How long the answer took: it may have aged all that time.
fn delay(times: Times) -> Duration {
    since(times.answered, times.asked)
}

/// The age that a response states: of several, the first one. One that is no number of seconds is
/// ignored (RFC 9111, section 5.1).
fn stated(headers: &HeaderMap) -> Duration {
    let first = members(headers, &AGE).next();
    let age = first.and_then(|age| delta_seconds(std::str::from_utf8(age).ok()?));
    age.unwrap_or_default()
}

/// When the origin made the response, as far as it says.
fn made(headers: &HeaderMap, times: Times) -> SystemTime {
    date(headers, &DATE).unwrap_or(times.answered)
}

/// A date that stands alone in its field.
pub(super) fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next().filter(|_| lines.next().is_none())?;
    parse(first.to_str().ok()?)
}

/// Nothing, if that is still to come: clocks differ.
fn since(later: SystemTime, earlier: SystemTime) -> Duration {
    later.duration_since(earlier).unwrap_or_default()
}
