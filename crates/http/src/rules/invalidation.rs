//! What a successful unsafe request invalidates (RFC 9111, section 4.4).

use http::header::{CONTENT_LOCATION, LOCATION};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, StatusCode, Uri};

/// Methods that are registered as safe, besides those that the crate `http` knows.
const SAFE: [&str; 4] = ["PROPFIND", "QUERY", "REPORT", "SEARCH"];

/// Whether a method is known to be safe (RFC 9110, section 9.2.1).
pub(crate) fn is_safe(method: &Method) -> bool {
    method.is_safe() || SAFE.contains(&method.as_str())
}

/// Whether a request has a method that is unsafe or unknown, and succeeded.
pub(super) fn succeeds_unsafely(method: &Method, status: StatusCode) -> bool {
    !is_safe(method) && (status.is_success() || status.is_redirection())
}

/// The URIs that a request invalidates, if its method is unsafe or unknown and it succeeded. Its own
/// target is the first. The URIs that the response names follow, if they are of the same origin.
pub(crate) fn invalidated(
    method: &Method,
    target: &Uri,
    status: StatusCode,
    response: &HeaderMap,
) -> Vec<Uri> {
    if !succeeds_unsafely(method, status) {
        return Vec::new();
    }
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
    let mut parts = target.clone().into_parts();
    let path = if let Some(rest) = reference.strip_prefix("//") {
        of_authority(rest, target)?
    } else if let Some((scheme, rest)) = absolute(reference) {
        target.scheme_str()?.eq_ignore_ascii_case(scheme).then_some(())?;
        of_authority(rest, target)?
    } else {
        relative(reference, target)
    };
    parts.path_and_query = Some(path.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

fn absolute(reference: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = reference.split_once("://")?;
    let is_scheme =
        scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme.then_some((scheme, rest))
}

/// The path of a reference with an authority, if that authority is the target's.
fn of_authority(rest: &str, target: &Uri) -> Option<String> {
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let authority: Authority = rest[..end].parse().ok()?;
    let ours = target.authority()?;
    let is_same = authority.host().eq_ignore_ascii_case(ours.host())
        && port(&authority, target) == port(ours, target);
    let path = if rest[end..].starts_with('/') { "" } else { "/" };
    is_same.then(|| without_dots(&format!("{path}{}", &rest[end..])))
}

fn port(authority: &Authority, target: &Uri) -> Option<u16> {
    let usual = if target.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    authority.port_u16().or(Some(usual))
}

fn relative(reference: &str, target: &Uri) -> String {
    let path = target.path();
    if reference.is_empty() {
        return target.path_and_query().map_or_else(|| path.to_owned(), ToString::to_string);
    }
    let folder = path.rfind('/').map_or("/", |end| &path[..=end]);
    match reference.as_bytes()[0] {
        b'/' => without_dots(reference),
        b'?' => format!("{path}{reference}"),
        _ => without_dots(&format!("{folder}{reference}")),
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

#[cfg(test)]
mod tests {
    use super::super::samples::headers;
    use super::*;

    const TARGET: &str = "http://example.com/a/b?c";

    fn after(method: &str, status: u16, response: &HeaderMap) -> Vec<String> {
        let method = method.parse().expect("a method");
        let status = StatusCode::from_u16(status).expect("a status");
        let targets = invalidated(&method, &Uri::from_static(TARGET), status, response);
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
