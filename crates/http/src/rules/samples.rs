//! Messages for the tests of the rules.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::Times;

/// A time that is not a whole second, for hardly any is.
pub(super) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(1_763_700_000_300)
}

/// An answer that came at once.
pub(super) fn at_once() -> Times {
    Times { asked: now(), answered: now() }
}

/// A date that is so many seconds away from now.
pub(super) fn date(seconds: i64) -> String {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let date = if seconds < 0 { now() - distance } else { now() + distance };
    httpdate::fmt_http_date(date)
}

/// Header fields in their order.
pub(super) fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let fields = fields.iter().map(|(name, value)| {
        let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
        (HeaderName::from_static(name), value)
    });
    let mut headers = HeaderMap::new();
    fields.for_each(|(name, value)| _ = headers.append(name, value));
    headers
}

/// As [`headers`], from a line for each: `name: value`. A number in braces is a date that is so
/// many seconds away.
pub(super) fn read(message: &'static str) -> HeaderMap {
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let fields: Vec<_> = lines
        .map(|line| {
            let (name, value) =
                line.split_once(": ").unwrap_or_else(|| (line.trim_end_matches(':'), ""));
            let offset = value.strip_prefix('{').and_then(|value| value.strip_suffix('}'));
            (
                name,
                offset
                    .map_or_else(|| value.to_owned(), |away| date(away.parse().expect("seconds"))),
            )
        })
        .collect();
    headers(&fields.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>())
}
