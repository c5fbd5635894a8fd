//! `grpc-timeout`: the deadline of a caller.

use http::HeaderMap;
use tokio::time::{Duration, Instant};

/// The field in which a caller says how long it waits.
pub(super) const GRPC_TIMEOUT: &str = "grpc-timeout";

/// The deadline of a request, if it has one. A value that does not follow the specification of gRPC
/// over HTTP/2 is ignored, as that demands.
pub(super) fn deadline(headers: &HeaderMap) -> Option<Instant> {
    let mut values = headers.get_all(GRPC_TIMEOUT).iter();
    let timeout = parse(values.next()?.as_bytes())?;
    if values.next().is_some() {
        return None;
    }
    Instant::now().checked_add(timeout)
}

/// One to eight digits and a unit.
fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(number * 3_600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_understood() {
        let timeouts = [
            ("2H", Duration::from_secs(7_200)),
            ("3M", Duration::from_secs(180)),
            ("4S", Duration::from_secs(4)),
            ("5m", Duration::from_millis(5)),
            ("6u", Duration::from_micros(6)),
            ("7n", Duration::from_nanos(7)),
            ("99999999H", Duration::from_secs(99_999_999 * 3_600)),
            ("00000001S", Duration::from_secs(1)),
            ("0S", Duration::ZERO),
        ];
        for (value, expected) in timeouts {
            assert_eq!(parse(value.as_bytes()), Some(expected), "{value}");
        }
    }

    #[test]
    fn what_is_no_timeout_is_ignored() {
        for value in
            ["", "S", "1", "1s", "1 S", "-1S", "+1S", "1.5S", "999999999S", "1SS", "\u{661}S"]
        {
            assert_eq!(parse(value.as_bytes()), None, "{value:?}");
        }
    }

    #[test]
    fn two_timeouts_are_none() {
        let mut headers = HeaderMap::new();
        headers.append(GRPC_TIMEOUT, http::HeaderValue::from_static("1S"));
        assert!(deadline(&headers).is_some());
        headers.append(GRPC_TIMEOUT, http::HeaderValue::from_static("2S"));
        assert!(deadline(&headers).is_none());
    }
}
