//! `Cache-Groups` and `Cache-Group-Invalidation` (RFC 9875), and surrogate keys.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use sfv::{BareItem, List, ListEntry, Parser};

use super::invalidation::succeeds_unsafely;

/// The groups that a response belongs to.
pub(crate) const CACHE_GROUPS: HeaderName = HeaderName::from_static("cache-groups");

/// The groups that a response invalidates.
const CACHE_GROUP_INVALIDATION: HeaderName = HeaderName::from_static("cache-group-invalidation");

/// The groups that a field lists, in any number and of any length. `None` if it is not a List of
/// Strings: it is ignored as a whole then (RFC 9651, section 1.1). Parameters are ignored.
pub(crate) fn listed(headers: &HeaderMap, name: &HeaderName) -> Option<Vec<String>> {
    if !headers.contains_key(name) {
        return Some(Vec::new());
    }
    let lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let field = lines.collect::<Vec<_>>().join(&b", "[..]);
    let list = Parser::new(&field).parse::<List>().ok()?;
    list.into_iter().map(string).collect()
}

fn string(member: ListEntry) -> Option<String> {
    match member {
        ListEntry::Item(item) => match item.bare_item {
            BareItem::String(group) => Some(group.into()),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    }
}

/// The groups that the response to a request invalidates, as [`listed`]. There are none if the method
/// is safe (RFC 9875, section 3), or if the request failed: as with its target (RFC 9111, section
/// 4.4), that may have changed nothing.
pub(crate) fn invalidated_groups(
    method: &Method,
    status: StatusCode,
    response: &HeaderMap,
) -> Option<Vec<String>> {
    match succeeds_unsafely(method, status) {
        true => listed(response, &CACHE_GROUP_INVALIDATION),
        false => Some(Vec::new()),
    }
}

/// The surrogate keys of a field, between white space or commas. A key that is not ASCII counts as
/// it is, byte for byte.
pub(crate) fn surrogate_keys<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let keys = lines.flat_map(|line| line.split(|byte| matches!(byte, b' ' | b'\t' | b',')));
    keys.filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::samples::headers;
    use super::*;

    #[track_caller]
    fn assert_lists(line: &str, groups: Option<&[&str]>) {
        let found = listed(&headers(&[("cache-groups", line)]), &CACHE_GROUPS);
        assert_eq!(found, groups.map(|it| it.iter().map(ToString::to_string).collect()), "{line}");
    }

    /// The examples of RFC 9875, sections 2 and 3.
    #[test]
    fn the_examples_of_the_rfc_are_read() {
        assert_lists(r#""scripts""#, Some(&["scripts"]));
        let response =
            headers(&[("cache-group-invalidation", r#""eurovision-results", "australia""#)]);
        let groups = invalidated_groups(&Method::POST, StatusCode::OK, &response);
        assert_eq!(groups, Some(vec!["eurovision-results".to_owned(), "australia".to_owned()]));
    }

    #[test]
    fn parameters_are_ignored_and_so_is_a_field_that_is_not_a_list_of_strings() {
        assert_lists(r#""a";x=1;y, "b";z"#, Some(&["a", "b"]));
        assert_lists(
            r#""with, comma", "with \"quotes\"""#,
            Some(&["with, comma", "with \"quotes\""]),
        );
        for line in
            ["scripts", r#"("a" "b")"#, r#""a", 1"#, r#""a", b"#, r#""a"#, r#""a" "b""#, r#""ä""#]
        {
            assert_lists(line, None);
        }
        assert_eq!(listed(&HeaderMap::new(), &CACHE_GROUPS), Some(vec![]));
    }

    #[test]
    fn all_lines_of_a_field_count() {
        let lines = headers(&[("cache-groups", r#""a", "b""#), ("cache-groups", r#""c""#)]);
        assert_eq!(listed(&lines, &CACHE_GROUPS).map(|groups| groups.len()), Some(3));
    }

    #[test]
    fn more_and_longer_groups_are_read_than_the_rfc_demands() {
        let groups: Vec<_> = (0..100).map(|nth| format!("{nth:0>64}")).collect();
        let line: Vec<_> = groups.iter().map(|group| format!("\"{group}\"")).collect();
        let found = listed(&headers(&[("cache-groups", &line.join(","))]), &CACHE_GROUPS);
        assert_eq!(found, Some(groups));
    }

    #[test]
    fn safe_methods_and_failed_requests_invalidate_no_group() {
        let response = headers(&[("cache-group-invalidation", "\"a\"")]);
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "PROPFIND"] {
            let method = method.parse().expect("a method");
            assert_eq!(invalidated_groups(&method, StatusCode::OK, &response), Some(vec![]));
        }
        for status in [StatusCode::CONFLICT, StatusCode::BAD_GATEWAY] {
            assert_eq!(invalidated_groups(&Method::POST, status, &response), Some(vec![]));
        }
        let see_other = invalidated_groups(&Method::POST, StatusCode::SEE_OTHER, &response);
        assert_eq!(see_other.map(|groups| groups.len()), Some(1));
    }

    #[test]
    fn surrogate_keys_stand_between_spaces_or_commas() {
        let name = HeaderName::from_static("cache-tag");
        for (line, keys) in [("a b", 2), ("a,b, c", 3), ("", 0), (" a\t b ,, ", 2), ("shelf-7", 1)]
        {
            assert_eq!(surrogate_keys(&headers(&[("cache-tag", line)]), &name).count(), keys);
        }
    }
}
