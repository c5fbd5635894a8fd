//! Messages for the tests of the rules.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::super::Times;

/// A time that is not a whole second, like most times.
pub(in super::super) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(1_763_700_000_300)
}

/// The times of a response that arrived at once.
pub(in super::super) fn at_once() -> Times {
    Times { request_time: now(), response_time: now() }
}

/// A date this many seconds from now.
pub(in super::super) fn date(seconds: i64) -> String {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let date = if seconds < 0 { now() - distance } else { now() + distance };
    httpdate::fmt_http_date(date)
}

/// Header fields in their order.
pub(in super::super) fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let fields = fields.iter().map(|(name, value)| {
        let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
        (HeaderName::from_static(name), value)
    });
    let mut headers = HeaderMap::new();
    fields.for_each(|(name, value)| _ = headers.append(name, value));
    headers
}

/// As [`headers`], from one line `name: value` per field. A number in braces is a date that many
/// seconds from now.
pub(in super::super) fn read(message: &'static str) -> HeaderMap {
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
