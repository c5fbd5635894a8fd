//! Validation of stored responses by the origin (RFC 9111, section 4.3).

use http::header::{AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, IF_MATCH};
use http::header::{
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::ages::date;
use super::fields::storable_headers;

const CONDITIONS: [HeaderName; 5] =
    [IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE];

/// Fields that describe the stored body. A response without a body does not change them.
const OF_THE_BODY: [HeaderName; 7] = [
    HeaderName::from_static("content-digest"),
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    HeaderName::from_static("content-md5"),
    CONTENT_RANGE,
    ETAG,
    HeaderName::from_static("repr-digest"),
];

/// What a response to `HEAD` says about the stored response to `GET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadSays {
    /// It is still the same, and its fields are updated.
    Same,
    /// The origin would send another response by now.
    Changed,
    /// Nothing about it.
    Nothing,
}

/// Whether a response has a validator. Only a success counts: a 304 about a resource that was
/// created since would make an old "not found" valid again.
pub(super) fn has_validator(status: StatusCode, response: &HeaderMap) -> bool {
    status.is_success() && (etag(response).is_some() || date(response, &LAST_MODIFIED).is_some())
}

/// Replaces the conditions of a request by the validators of a stored response. Returns false if
/// that has no validator.
pub(crate) fn add_validators(request: &mut HeaderMap, stored: &HeaderMap) -> bool {
    CONDITIONS.iter().for_each(|name| _ = request.remove(name));
    let etag = etag(stored).cloned();
    let modified = stored.get(LAST_MODIFIED).filter(|_| date(stored, &LAST_MODIFIED).is_some());
    let found = etag.is_some() || modified.is_some();
    etag.map(|etag| request.insert(IF_NONE_MATCH, etag));
    modified.map(|date| request.insert(IF_MODIFIED_SINCE, date.clone()));
    found
}

/// The entity tag, if there is exactly one.
pub(super) fn etag(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut lines = headers.get_all(ETAG).iter();
    lines.next().filter(|tag| !tag.is_empty() && lines.next().is_none())
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
        let stays = OF_THE_BODY.contains(name) && (name != ETAG || stored.contains_key(ETAG));
        if !stays {
            fresh.remove(name);
            news.get_all(name).iter().for_each(|value| _ = fresh.append(name, value.clone()));
        }
    }
    fresh
}

/// What a response to `HEAD` says about the stored response to `GET` (RFC 9111, section 4.3.5).
pub(crate) fn head_says(stored: &HeaderMap, head: StatusCode, headers: &HeaderMap) -> HeadSays {
    match head {
        StatusCode::OK => {
            let told = [ETAG, LAST_MODIFIED, CONTENT_LENGTH];
            let mut told = told.iter().filter(|name| headers.contains_key(*name));
            // A stored response that came in chunks has no `Content-Length` to compare.
            let is_unknown = |name| name == CONTENT_LENGTH && !stored.contains_key(name);
            let is_same =
                told.all(|name| headers.get(name) == stored.get(name) || is_unknown(name));
            if is_same { HeadSays::Same } else { HeadSays::Changed }
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => HeadSays::Changed,
        _ => HeadSays::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::read;
    use super::*;

    #[test]
    fn what_is_kept_is_asked_for_in_place_of_the_conditions_of_the_client() {
        let mut request = read(
            "if-match: \"x\"\nif-none-match: \"y\"\nif-unmodified-since: {0}\nif-range: \"z\"\na: 1",
        );
        let stored = read("etag: W/\"a\"\nlast-modified: {-60}\ndate: {0}");
        assert!(add_validators(&mut request, &stored));
        assert_eq!(request, read("a: 1\nif-none-match: W/\"a\"\nif-modified-since: {-60}"));
    }

    #[test]
    fn without_a_validator_nothing_is_asked() {
        for stored in ["date: {0}", "last-modified: yesterday", "etag: \"a\"\netag: \"b\"", "etag:"]
        {
            let mut request = read("if-none-match: \"y\"\na: 1");
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

    #[test]
    fn a_head_answer_tells_whether_what_is_kept_is_still_the_same() {
        let kept = read("etag: \"a\"\nlast-modified: {-60}\ncontent-length: 5");
        for (status, head, says) in [
            (200, "etag: \"a\"\ncontent-length: 5", HeadSays::Same),
            (200, "cache-control: max-age=5", HeadSays::Same),
            (200, "etag: \"b\"\ncontent-length: 5", HeadSays::Changed),
            (200, "last-modified: {-1}", HeadSays::Changed),
            (200, "etag: \"a\"\ncontent-length: 6", HeadSays::Changed),
            (404, "", HeadSays::Changed),
            (410, "etag: \"a\"", HeadSays::Changed),
            (304, "", HeadSays::Nothing),
            (503, "content-length: 0", HeadSays::Nothing),
        ] {
            let head = read(head);
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(head_says(&kept, status, &head), says, "{status} {head:?}");
        }
        let in_chunks = read("etag: \"a\"");
        let says = head_says(&in_chunks, StatusCode::OK, &read("content-length: 5"));
        assert_eq!(says, HeadSays::Same);
    }
}
