//! Byte ranges of a complete stored response (RFC 9110, section 14).

use std::time::Duration;

use http::header::{DATE, IF_RANGE, LAST_MODIFIED, RANGE};
use http::{HeaderMap, HeaderValue};

use super::ages::date;
use super::validation::etag;

/// Which part of a stored body answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slice {
    /// All of it.
    Whole,
    /// From the first to the last of these bytes.
    Part { first: u64, last: u64 },
    /// The body has none of the requested bytes.
    Unsatisfiable,
}

/// Which part of a body of this length a `GET` requests.
///
/// Several ranges are answered with the whole body. That is allowed, and shorter than the multipart
/// response that many small ranges would cause.
pub(crate) fn slice(request: &HeaderMap, stored: &HeaderMap, length: u64) -> Slice {
    let mut lines = request.get_all(RANGE).iter();
    let range = lines.next().filter(|_| lines.next().is_none());
    let range = range.filter(|_| is_of_what_is_stored(request, stored));
    range.and_then(|range| one_range(range.to_str().ok()?, length)).unwrap_or(Slice::Whole)
}

/// Evaluates `If-Range`: whether the client has other parts of this very body. True without the
/// field.
fn is_of_what_is_stored(request: &HeaderMap, stored: &HeaderMap) -> bool {
    let Some(condition) = request.get(IF_RANGE) else { return true };
    if date(request, &IF_RANGE).is_some() {
        return Some(condition) == stored.get(LAST_MODIFIED) && is_strong(stored);
    }
    let is_weak = |tag: &HeaderValue| tag.as_bytes().starts_with(b"W/");
    etag(stored).is_some_and(|tag| tag == condition && !is_weak(tag))
}

/// Whether `Last-Modified` is a strong validator: dates have whole seconds, and a body can change
/// twice in one second (RFC 9110, section 8.8.2.2).
fn is_strong(stored: &HeaderMap) -> bool {
    let (Some(made), Some(modified)) = (date(stored, &DATE), date(stored, &LAST_MODIFIED)) else {
        return false;
    };
    made.duration_since(modified).is_ok_and(|past| past >= Duration::from_secs(1))
}

/// Parses one range of bytes. `None` for anything else.
fn one_range(range: &str, length: u64) -> Option<Slice> {
    let (unit, range) = range.split_once('=')?;
    let (first, last) =
        range.trim().split_once('-').filter(|_| unit.eq_ignore_ascii_case("bytes"))?;
    match (first.is_empty(), last.is_empty()) {
        (true, true) => None,
        (true, false) => suffix(number(last)?, length),
        (false, true) => part(number(first)?, u64::MAX, length),
        (false, false) => part(number(first)?, number(last)?, length),
    }
}

fn suffix(wanted: u64, length: u64) -> Option<Slice> {
    if wanted == 0 {
        return Some(Slice::Unsatisfiable);
    }
    part(length.saturating_sub(wanted), u64::MAX, length)
}

fn part(first: u64, last: u64, length: u64) -> Option<Slice> {
    if first > last {
        return None;
    }
    if first >= length {
        return Some(Slice::Unsatisfiable);
    }
    Some(Slice::Part { first, last: last.min(length - 1) })
}

/// A number of bytes. A number that does not fit counts as the largest that does.
fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{headers, read};
    use super::*;

    const fn part_of(first: u64, last: u64) -> Slice {
        Slice::Part { first, last }
    }

    #[test]
    fn one_range_of_bytes_is_cut_out() {
        for (range, expected) in [
            ("bytes=0-1", part_of(0, 1)),
            ("Bytes=1-", part_of(1, 10)),
            ("bytes=-1", part_of(10, 10)),
            ("bytes=-11", part_of(0, 10)),
            ("bytes=-99999999999999999999999", part_of(0, 10)),
            ("bytes=0-99999999999999999999999", part_of(0, 10)),
            ("bytes=10-10", part_of(10, 10)),
            ("bytes=11-", Slice::Unsatisfiable),
            ("bytes=18446744073709551615-", Slice::Unsatisfiable),
            ("bytes=-0", Slice::Unsatisfiable),
            ("bytes=2-1", Slice::Whole),
            ("bytes=0-1,3-4", Slice::Whole),
            ("bytes=-", Slice::Whole),
            ("bytes=+0-1", Slice::Whole),
            ("bytes=0", Slice::Whole),
            ("lines=0-1", Slice::Whole),
            ("bytes", Slice::Whole),
            ("", Slice::Whole),
        ] {
            let slice = slice(&headers(&[("range", range)]), &headers(&[]), 11);
            assert_eq!(slice, expected, "{range}");
        }
        let twice = read("range: bytes=0-1\nrange: bytes=0-1");
        assert_eq!(slice(&twice, &headers(&[]), 11), Slice::Whole);
        assert_eq!(slice(&headers(&[]), &headers(&[]), 11), Slice::Whole);
    }

    #[test]
    fn there_is_no_part_of_nothing() {
        for range in ["bytes=0-", "bytes=0-0", "bytes=-5"] {
            let slice = slice(&headers(&[("range", range)]), &headers(&[]), 0);
            assert_eq!(slice, Slice::Unsatisfiable, "{range}");
        }
    }

    #[test]
    fn a_range_is_served_only_to_a_client_that_has_parts_of_the_same_body() {
        const TAGGED: &str = "etag: \"a\"\nlast-modified: {-60}\ndate: {0}";
        const JUST_CHANGED: &str = "last-modified: {0}\ndate: {0}";
        for (condition, stored, is_part) in [
            ("if-range: \"a\"", TAGGED, true),
            ("if-range: \"b\"", TAGGED, false),
            ("if-range: W/\"a\"", "etag: W/\"a\"", false),
            ("if-range: {-60}", TAGGED, true),
            ("if-range: {-59}", TAGGED, false),
            ("if-range: {0}", JUST_CHANGED, false),
            ("if-range: \"a\"", "date: {0}", false),
        ] {
            let mut request = read(condition);
            request.insert(RANGE, HeaderValue::from_static("bytes=0-1"));
            let slice = slice(&request, &read(stored), 11);
            assert_eq!(slice != Slice::Whole, is_part, "{condition} {stored}");
        }
    }
}
