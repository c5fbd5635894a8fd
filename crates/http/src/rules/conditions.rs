//! Conditional requests against a stored response (RFC 9110, section 13, and RFC 9111, 4.3.2).

use http::header::{
    CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
};
use http::header::{DATE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, TRAILER};
use http::{HeaderMap, HeaderName, StatusCode};

use super::ages::date;
use super::lists::entity_tags;
use super::validation::etag;

/// Fields that describe a body, which a 304 does not have.
const OF_THE_BODY: [HeaderName; 9] = [
    HeaderName::from_static("content-digest"),
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    HeaderName::from_static("content-md5"),
    CONTENT_RANGE,
    CONTENT_TYPE,
    HeaderName::from_static("repr-digest"),
    TRAILER,
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

fn without_weakness(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// The fields of a 304 to a client: those of the stored response, without those that describe the
/// body (RFC 9110, section 15.4.5).
pub(crate) fn not_modified_headers(stored: &HeaderMap) -> HeaderMap {
    let mut carried = stored.clone();
    OF_THE_BODY.iter().for_each(|name| _ = carried.remove(name));
    // `Last-Modified` is of use only to a client without an entity tag.
    if carried.contains_key(ETAG) {
        carried.remove(LAST_MODIFIED);
    }
    carried
}

#[cfg(test)]
mod tests {
    use super::super::samples::read;
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
