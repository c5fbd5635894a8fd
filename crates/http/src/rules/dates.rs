//! Age and freshness lifetime of a response (RFC 9111, sections 4.2.1 to 4.2.3).

use std::time::{Duration, SystemTime};

use http::header::{AGE, DATE, EXPIRES, LAST_MODIFIED};
use http::{HeaderMap, HeaderName};
use httpdate::parse_http_date;

use super::lists::{Directives, delta_seconds, members, only};

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
        let expires = headers.contains_key(EXPIRES) && !directives.is_targeted;
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
    // The response may have aged during all of the exchange.
    let delay = since(times.response_time, times.request_time);
    apparent.max(stated(headers).saturating_add(delay))
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
    parse(only(headers, name)?.to_str().ok()?)
}

/// The time since a moment. Zero if that moment is in the future, since clocks differ.
fn since(later: SystemTime, stored_response: SystemTime) -> Duration {
    later.duration_since(stored_response).unwrap_or_default()
}

/// Parses a date in any of the three forms that a recipient accepts (RFC 9110, section 5.6.7). The case
/// of its letters is ignored, and so is a weekday that is not that of the date.
fn parse(date: &str) -> Option<SystemTime> {
    parse_http_date(date).ok().or_else(|| {
        let date = capitalized(date.trim());
        let (weekday, rest) = date.split_at(date.find([',', ' '])?);
        let names = WEEKDAYS.map(|name| if weekday.len() == 3 { &name[..3] } else { name });
        names.contains(&weekday).then_some(())?;
        names.iter().find_map(|name| parse_http_date(&format!("{name}{rest}")).ok())
    })
}

/// A date with its words as they should be written.
fn capitalized(date: &str) -> String {
    let mut is_first = true;
    let letters = date.chars().map(|letter| {
        let is_in_word = !std::mem::replace(&mut is_first, !letter.is_ascii_alphabetic());
        if is_in_word { letter.to_ascii_lowercase() } else { letter.to_ascii_uppercase() }
    });
    letters.collect::<String>().replace("Gmt", "GMT")
}

const WEEKDAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

#[cfg(test)]
mod tests {
    use super::*;

    fn at(date: &str) -> Option<u64> {
        let date = parse(date)?;
        Some(date.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs())
    }

    #[test]
    fn all_three_forms_are_read() {
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun Nov 06 08:49:37 1994",
            "SUN, 06 NOV 1994 08:49:37 gmt",
            // The weekday is wrong, and is ignored.
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Thu Nov  6 08:49:37 1994",
        ] {
            assert_eq!(at(date), Some(784_111_777), "{date}");
        }
    }

    #[test]
    fn it_reads_what_is_written() {
        for days in 0..80_000 {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400 + 12_345);
            assert_eq!(parse(&httpdate::fmt_http_date(time)), Some(time), "{days}");
        }
    }

    #[test]
    fn a_year_of_two_digits_is_of_this_century_before_70() {
        for (date, year) in [
            ("Thursday, 18-Aug-50 02:01:18 GMT", 2050),
            ("Thursday, 18-Dec-75 02:01:18 GMT", 1975),
            ("Wednesday, 18-Aug-76 02:01:18 GMT", 1976),
            ("Wednesday, 18-Aug-99 02:01:18 GMT", 1999),
            ("Friday, 18-Aug-00 02:01:18 GMT", 2000),
        ] {
            let full = format!("{} {year} 02:01:18 GMT", &date[date.len() - 22..][..6]);
            let full = format!("Mon, {}", full.replace('-', " ").trim());
            assert_eq!(at(date), at(&full), "{date} {full}");
            assert!(at(date).is_some());
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for date in [
            "",
            "0",
            "yesterday",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "Sun, 06  Nov  1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT",
            "Sun, 06 Nov 1994 08:49:37 AEST",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 1995 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Foo, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 94",
            "Sun Nov  6 08:49:37 1994 GMT",
            "Sun Nov é 08:49:37 1994",
        ] {
            assert_eq!(at(date), None, "{date}");
        }
    }
}
