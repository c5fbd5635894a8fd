//! What a successful unsafe request invalidates (RFC 9111, section 4.4), groups of responses (RFC 9875),
//! and surrogate keys.

use http::header::{CONTENT_LOCATION, LOCATION};
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use sfv::{BareItem, Item, List, ListEntry};

use super::lists::structured;

/// Methods that are registered as safe, besides those that the crate `http` knows.
const SAFE: [&str; 4] = ["PROPFIND", "QUERY", "REPORT", "SEARCH"];

/// Whether a method is known to be safe (RFC 9110, section 9.2.1).
pub(crate) fn is_safe(method: &Method) -> bool {
    method.is_safe() || SAFE.contains(&method.as_str())
}

/// Whether a request has a method that is unsafe or unknown, and succeeded.
pub(crate) fn succeeds_unsafely(method: &Method, status: StatusCode) -> bool {
    !is_safe(method) && (status.is_success() || status.is_redirection())
}

/// The URIs that a request invalidates [if it changes something](succeeds_unsafely). Its own target is
/// the first. The URIs that the response names follow, if they are of the same origin.
pub(crate) fn invalidated(target: &Uri, response: &HeaderMap) -> Vec<Uri> {
    let mut targets = vec![target.clone()];
    for name in [LOCATION, CONTENT_LOCATION] {
        let named = response.get(name).and_then(|named| resolved(named.to_str().ok()?, target));
        targets.extend(named.filter(|named| !targets.contains(named)));
    }
    targets
}

/// Resolves a reference, if it leads to the same origin (RFC 3986, section 5.2).
fn resolved(reference: &str, target: &Uri) -> Option<Uri> {
    let reference = reference.split('#').next()?.trim();
    let scheme = reference.split_once("://").map(|(scheme, _)| scheme);
    let absolute: Option<Uri> = match scheme.filter(|scheme| !scheme.contains(['/', '?'])) {
        None if reference.starts_with("//") => {
            Some(format!("{}:{reference}", target.scheme_str()?).parse().ok()?)
        }
        Some(_) => Some(reference.parse().ok()?),
        None => None,
    };
    let path = match absolute {
        Some(uri) if origin(&uri) == origin(target) => uri.path_and_query()?.to_string(),
        Some(_) => return None,
        None => relative(reference, target),
    };
    let mut parts = target.clone().into_parts();
    parts.path_and_query = Some(without_dots(&path).parse().ok()?);
    Uri::from_parts(parts).ok()
}

fn origin(uri: &Uri) -> (Option<&Scheme>, Option<String>, u16) {
    let usual = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    let host = uri.host().map(str::to_ascii_lowercase);
    (uri.scheme(), host, uri.port_u16().unwrap_or(usual))
}

fn relative(reference: &str, target: &Uri) -> String {
    let path = target.path();
    match reference.as_bytes().first() {
        None => target.path_and_query().map_or_else(|| path.to_owned(), ToString::to_string),
        Some(b'/') => reference.to_owned(),
        Some(b'?') => format!("{path}{reference}"),
        Some(_) => format!("{}{reference}", path.rfind('/').map_or("/", |end| &path[..=end])),
    }
}

/// Removes the dot segments `.` and `..` (RFC 3986, section 5.2.4).
fn without_dots(reference: &str) -> String {
    let (path, query) = reference.find('?').map_or((reference, ""), |at| reference.split_at(at));
    let mut taken: Vec<&str> = Vec::new();
    let mut steps = path.split('/').skip(1).peekable();
    while let Some(step) = steps.next() {
        let is_last = steps.peek().is_none();
        match step {
            "." | ".." => {
                taken.truncate(taken.len() - usize::from(step == ".." && !taken.is_empty()));
                // A path that ends with a dot segment ends with a slash.
                taken.extend(is_last.then_some(""));
            }
            _ => taken.push(step),
        }
    }
    format!("/{}{query}", taken.join("/"))
}

/// The groups that a response belongs to.
pub(crate) const CACHE_GROUPS: HeaderName = HeaderName::from_static("cache-groups");

/// The groups that a response invalidates.
const CACHE_GROUP_INVALIDATION: HeaderName = HeaderName::from_static("cache-group-invalidation");

/// The groups that a field lists, in any number and of any length. `None` if it is not a List of
/// Strings: it is ignored as a whole then (RFC 9651, section 1.1). Parameters are ignored.
pub(crate) fn listed(headers: &HeaderMap, name: &HeaderName) -> Option<Vec<String>> {
    let string = |member| match member {
        ListEntry::Item(Item { bare_item: BareItem::String(group), .. }) => Some(group.into()),
        _ => None,
    };
    structured::<List>(headers, name)?.into_iter().map(string).collect()
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
mod tests_of_invalidation {
    use super::super::tests::samples::headers;
    use super::*;

    const TARGET: &str = "http://example.com/a/b?c";

    fn after(method: &str, status: u16, response: &HeaderMap) -> Vec<String> {
        let method = method.parse().expect("a method");
        let status = StatusCode::from_u16(status).expect("a status");
        let targets = invalidated(&Uri::from_static(TARGET), response).into_iter();
        let targets: Vec<_> = targets.filter(|_| succeeds_unsafely(&method, status)).collect();
        targets.iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn assert_leads_to(location: &str, expected: Option<&str>) {
        let targets = after("POST", 201, &headers(&[("location", location)]));
        assert_eq!(targets[0], TARGET);
        assert_eq!(targets.get(1).map(String::as_str), expected, "{location}");
    }

    #[test]
    fn what_goes_well_and_is_not_safe_makes_its_target_obsolete() {
        for method in ["POST", "PUT", "PATCH", "DELETE", "M-SEARCH", "UNHEARD-OF"] {
            for status in [200, 204, 303] {
                assert_eq!(after(method, status, &headers(&[])), [TARGET], "{method} {status}");
            }
            for status in [101, 404, 500] {
                assert!(after(method, status, &headers(&[])).is_empty(), "{method} {status}");
            }
        }
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "PROPFIND"] {
            assert!(after(method, 200, &headers(&[])).is_empty(), "{method}");
        }
    }

    #[test]
    fn references_are_resolved_against_the_target() {
        for (location, path) in [
            ("/x?y#z", "/x?y"),
            ("x", "/a/x"),
            ("./x/", "/a/x/"),
            ("../x/../y", "/y"),
            ("../../..", "/"),
            ("?q", "/a/b?q"),
            ("/x/./y/..", "/x/"),
            ("/%2e%2E/%c3?../d", "/%2e%2E/%c3?../d"),
            ("//EXAMPLE.com/x", "/x"),
            ("http://example.com:80?q", "/?q"),
            ("HTTP://example.com/x", "/x"),
            ("/x:y://z", "/x:y://z"),
        ] {
            assert_leads_to(location, Some(&format!("http://example.com{path}")));
        }
    }

    #[test]
    fn other_origins_are_left_alone() {
        for location in [
            "http://example.org/x",
            "https://example.com/x",
            "http://example.com:8080/x",
            "//example.org/x",
            "http://example.com.evil/x",
            "http:///x",
            "",
            "#z",
            "mailto:a@b",
        ] {
            let targets = after("POST", 201, &headers(&[("location", location)]));
            assert!(
                targets.iter().all(|uri| uri.starts_with("http://example.com/")),
                "{targets:?}"
            );
            assert!(!targets.iter().any(|uri| uri.ends_with("/x")), "{location}: {targets:?}");
        }
    }

    #[test]
    fn both_places_that_an_answer_names_are_obsolete_each_once() {
        let names = headers(&[("location", "/x"), ("content-location", "/y")]);
        assert_eq!(
            after("PUT", 201, &names)[1..],
            ["http://example.com/x", "http://example.com/y"]
        );
        let names = headers(&[("location", "/a/b?c"), ("content-location", "b?c")]);
        assert_eq!(after("PUT", 201, &names), [TARGET]);
    }
}

#[cfg(test)]
mod tests_of_groups {
    use super::super::tests::samples::headers;
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
