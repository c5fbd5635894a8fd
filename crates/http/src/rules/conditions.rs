//! Conditional requests against a stored response, its validation by the origin (RFC 9110, section 13,
//! and RFC 9111, section 4.3), and byte ranges of it (RFC 9110, section 14).

use std::time::Duration;

use http::header::{
    AGE, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE,
    ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
    RANGE, TRAILER,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::dates::date;
use super::fields::storable_headers;
use super::lists::{digits, entity_tags, only};

/// Fields that describe a stored body. A response without a body does not change them.
const OF_THE_BODY: [HeaderName; 6] = [
    HeaderName::from_static("content-digest"),
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    HeaderName::from_static("content-md5"),
    CONTENT_RANGE,
    HeaderName::from_static("repr-digest"),
];

/// Whether a request may be answered by 304: it has `If-None-Match` or `If-Modified-Since`.
pub(crate) fn asks_if_modified(request: &HeaderMap) -> bool {
    request.contains_key(IF_NONE_MATCH) || request.contains_key(IF_MODIFIED_SINCE)
}

/// Whether the client has the stored response already, so that a 304 answers it.
pub(crate) fn is_not_modified(request: &HeaderMap, status: StatusCode, stored: &HeaderMap) -> bool {
    if status != StatusCode::OK {
        return false;
    }
    if request.contains_key(IF_NONE_MATCH) {
        return has_tag(request, stored);
    }
    let Some(since) = date(request, &IF_MODIFIED_SINCE) else { return false };
    let modified = date(stored, &LAST_MODIFIED).or_else(|| date(stored, &DATE));
    modified.is_some_and(|modified| modified <= since)
}

fn has_tag(request: &HeaderMap, stored: &HeaderMap) -> bool {
    let kept = etag(stored).map(|tag| without_weakness(tag.as_bytes()));
    entity_tags(request, &IF_NONE_MATCH)
        .any(|tag| tag == b"*" || kept.is_some_and(|kept| kept == without_weakness(tag)))
}

pub(crate) fn without_weakness(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// The fields of a 304 to a client: those of the stored response, without those that describe the
/// body (RFC 9110, section 15.4.5).
pub(crate) fn not_modified_headers(stored: &HeaderMap) -> HeaderMap {
    let mut carried = stored.clone();
    let others = [CONTENT_LANGUAGE, CONTENT_TYPE, TRAILER];
    OF_THE_BODY.iter().chain(&others).for_each(|name| _ = carried.remove(name));
    // `Last-Modified` is of use only to a client without an entity tag.
    if carried.contains_key(ETAG) {
        carried.remove(LAST_MODIFIED);
    }
    carried
}

/// A request without its conditions and its range, for a response that others share.
pub(crate) fn without_conditions(request: &HeaderMap) -> HeaderMap {
    let mut headers = request.clone();
    let conditions = [IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE];
    conditions.iter().chain(&[RANGE]).for_each(|name| _ = headers.remove(name));
    headers
}

/// Whether a response has a validator. Only a success counts: a 304 about a resource that was
/// created since would make an old "not found" valid again.
pub(super) fn has_validator(status: StatusCode, response: &HeaderMap) -> bool {
    status.is_success() && (etag(response).is_some() || date(response, &LAST_MODIFIED).is_some())
}

/// Adds the validators of a stored response to a request without conditions. Returns false if that has
/// no validator.
pub(crate) fn add_validators(request: &mut HeaderMap, stored: &HeaderMap) -> bool {
    let etag = etag(stored).cloned();
    let modified = stored.get(LAST_MODIFIED).filter(|_| date(stored, &LAST_MODIFIED).is_some());
    let found = etag.is_some() || modified.is_some();
    etag.map(|etag| request.insert(IF_NONE_MATCH, etag));
    modified.map(|date| request.insert(IF_MODIFIED_SINCE, date.clone()));
    found
}

/// The entity tag, if there is exactly one.
pub(super) fn etag(headers: &HeaderMap) -> Option<&HeaderValue> {
    only(headers, &ETAG).filter(|tag| !tag.is_empty())
}

/// The fields of a stored response after a 304: those of the 304 replace the stored ones, except for
/// fields that describe the body (RFC 9111, section 3.2).
///
/// `Age` and `Date` are those of the 304, to compute the freshness again. Without a `Date`, the time
/// of arrival counts (RFC 9110, section 6.6.1), as the old date would make the response too old.
/// Only [`storable_headers`] of the 304 are taken.
pub(crate) fn freshen(stored: &HeaderMap, not_modified: &HeaderMap) -> HeaderMap {
    let news = storable_headers(not_modified);
    let mut fresh = stored.clone();
    fresh.remove(AGE);
    fresh.remove(DATE);
    not_modified.get_all(AGE).iter().for_each(|age| _ = fresh.append(AGE, age.clone()));
    for name in news.keys() {
        if !OF_THE_BODY.contains(name) && (name != ETAG || !stored.contains_key(ETAG)) {
            fresh.remove(name);
            news.get_all(name).iter().for_each(|value| _ = fresh.append(name, value.clone()));
        }
    }
    fresh
}

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
///
/// An empty body has no part, so a range of it is ignored.
pub(crate) fn slice(request: &HeaderMap, stored: &HeaderMap, length: u64) -> Slice {
    let is_meant = length > 0 && is_of_what_is_stored(request, stored);
    let range = only(request, &RANGE).filter(|_| is_meant);
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
        (true, false) => suffix(digits(last)?, length),
        (false, true) => part(digits(first)?, u64::MAX, length),
        (false, false) => part(digits(first)?, digits(last)?, length),
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

#[cfg(test)]
mod tests_of_conditions {
    use super::super::tests::samples::read;
    use super::*;

    #[track_caller]
    fn assert_modified(request: &'static str, stored: &'static str, is_modified: bool) {
        let found = !is_not_modified(&read(request), StatusCode::OK, &read(stored));
        assert_eq!(found, is_modified, "{request:?} {stored:?}");
    }

    #[test]
    fn a_client_that_has_the_tag_needs_no_body() {
        const KEPT: &str = "etag: \"abcdef\"\ndate: {0}";
        assert_modified("if-none-match: \"abcdef\"", KEPT, false);
        assert_modified("if-none-match: W/\"abcdef\"", KEPT, false);
        assert_modified("if-none-match: *", KEPT, false);
        assert_modified("if-none-match: \"1234\", \"abcdef\", \"5678\"", KEPT, false);
        assert_modified("if-none-match: \"1\"\nif-none-match: \"2\", \"abcdef\"", KEPT, false);
        assert_modified("if-none-match: \"abcdef\"", "etag: W/\"abcdef\"", false);
        assert_modified("if-none-match: \"a,\\\", \"b\"", "etag: \"a,\\\"", false);
    }

    #[test]
    fn a_client_that_has_another_tag_needs_the_body() {
        assert_modified("if-none-match: \"abc\"", "etag: \"abcdef\"", true);
        assert_modified("if-none-match: \"x,\"abcdef\"\"", "etag: \"abcdef,\"", true);
        assert_modified("if-none-match: \"abcdef\"", "date: {0}", true);
        assert_modified("a: 1", "etag: \"abcdef\"", true);
    }

    #[test]
    fn a_tag_takes_precedence_over_a_date() {
        const KEPT: &str = "etag: \"a\"\nlast-modified: {-5000}\ndate: {0}";
        assert_modified("if-none-match: \"a\"\nif-modified-since: {-9000}", KEPT, false);
        assert_modified("if-none-match: \"b\"\nif-modified-since: {-1}", KEPT, true);
    }

    #[test]
    fn a_client_that_has_what_is_no_older_needs_no_body() {
        const KEPT: &str = "last-modified: {-3000}\ndate: {0}";
        assert_modified("if-modified-since: {-3000}", KEPT, false);
        assert_modified("if-modified-since: {-2000}", KEPT, false);
        assert_modified("if-modified-since: {-3001}", KEPT, true);
        assert_modified("if-modified-since: yesterday", KEPT, true);
        assert_modified("if-modified-since: {0}\nif-modified-since: {0}", KEPT, true);
        assert_modified("if-modified-since: {0}", "date: {0}", false);
        assert_modified("if-modified-since: {-1}", "date: {0}", true);
        assert_modified("if-modified-since: {0}", "a: 1", true);
    }

    #[test]
    fn what_is_not_ok_is_never_left_out() {
        let request = read("if-none-match: *");
        let stored = read("etag: \"a\"");
        assert!(!is_not_modified(&request, StatusCode::NOT_FOUND, &stored));
    }

    #[test]
    fn a_304_carries_all_but_what_describes_the_body() {
        let stored = read(
            "etag: \"a\"\nlast-modified: {-5}\ncontent-length: 5\ncontent-type: text/plain\ndate: {0}
             content-location: /a\nvary: a\nexpires: {5}\ncache-control: public\naccess-control-allow-origin: *",
        );
        let carried = read(
            "etag: \"a\"\ndate: {0}\ncontent-location: /a\nvary: a\nexpires: {5}\ncache-control: public
             access-control-allow-origin: *",
        );
        assert_eq!(not_modified_headers(&stored), carried);
        let untagged = read("last-modified: {-5}");
        assert_eq!(not_modified_headers(&untagged), untagged);
    }
}

#[cfg(test)]
mod tests_of_validation {
    use super::super::tests::samples::read;
    use super::*;

    #[test]
    fn what_is_kept_is_asked_for_in_place_of_the_conditions_of_the_client() {
        let request = read(
            "if-match: \"x\"\nif-none-match: \"y\"\nif-unmodified-since: {0}\nif-range: \"z\"\na: 1",
        );
        let stored = read("etag: W/\"a\"\nlast-modified: {-60}\ndate: {0}");
        let mut request = without_conditions(&request);
        assert!(add_validators(&mut request, &stored));
        assert_eq!(request, read("a: 1\nif-none-match: W/\"a\"\nif-modified-since: {-60}"));
    }

    #[test]
    fn without_a_validator_nothing_is_asked() {
        for stored in ["date: {0}", "last-modified: yesterday", "etag: \"a\"\netag: \"b\"", "etag:"]
        {
            let mut request = without_conditions(&read("if-none-match: \"y\"\na: 1"));
            assert!(!add_validators(&mut request, &read(stored)), "{stored}");
            assert_eq!(request, read("a: 1"), "{stored}");
        }
    }

    #[test]
    fn only_a_success_can_be_validated() {
        let tagged = read("etag: \"a\"");
        assert!(has_validator(StatusCode::OK, &tagged));
        assert!(!has_validator(StatusCode::NOT_FOUND, &tagged));
    }

    #[test]
    fn the_fields_of_a_304_replace_all_stored_fields_but_those_of_the_body() {
        let stored = read(
            "etag: \"a\"\ncontent-length: 5\ncontent-encoding: gzip\ncontent-md5: x\ncontent-range: y
             content-type: text/plain\nlink: <a>\nlink: <b>\nold: 1\ncache-control: max-age=1\ndate: {-9}",
        );
        let sent = read(
            "etag: \"b\"\ncontent-length: 0\ncontent-encoding: br\ncontent-md5: z\ncontent-range: z
             content-type: text/html\nlink: <c>\nlink: <d>\ncache-control: max-age=2\ndate: {0}
             connection: close, hop\nhop: 1",
        );
        let expected = read(
            "etag: \"a\"\ncontent-length: 5\ncontent-encoding: gzip\ncontent-md5: x\ncontent-range: y
             content-type: text/html\nlink: <c>\nlink: <d>\nold: 1\ncache-control: max-age=2\ndate: {0}",
        );
        assert_eq!(freshen(&stored, &sent), expected);
    }

    #[test]
    fn a_tag_that_was_not_there_is_taken_over_and_so_is_the_age() {
        let fresh = freshen(&read("age: 9\na: 1"), &read("etag: \"b\"\nage: 5"));
        assert_eq!(fresh, read("a: 1\nage: 5\netag: \"b\""));
        assert_eq!(freshen(&read("age: 9\na: 1"), &read("b: 2")), read("a: 1\nb: 2"));
    }

    #[test]
    fn an_answer_without_a_date_does_not_have_that_of_what_is_kept() {
        assert_eq!(freshen(&read("date: {-9}\na: 1"), &read("b: 2")), read("a: 1\nb: 2"));
    }
}

#[cfg(test)]
mod tests_of_ranges {
    use super::super::tests::samples::{headers, read};
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
    fn a_range_of_nothing_is_ignored() {
        for range in ["bytes=0-", "bytes=0-0", "bytes=-5"] {
            let slice = slice(&headers(&[("range", range)]), &headers(&[]), 0);
            assert_eq!(slice, Slice::Whole, "{range}");
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
