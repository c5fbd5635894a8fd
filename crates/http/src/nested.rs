//! What axum's nested routers took off the path of a request.
//!
//! `Router::nest` strips its prefix, so two routers with the same routes see the same paths. The
//! prefix is known by the pattern of the nested path and by the parameters of the route.

use axum::extract::{FromRequestParts, NestedPath, OriginalUri, RawPathParams};
use futures_util::FutureExt;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Extensions, Uri};
use percent_encoding::{percent_decode_str, percent_encode_byte};

/// The URI with which a request came to the first router.
pub(super) fn original_uri(extensions: &Extensions) -> Option<&Uri> {
    extensions.get::<OriginalUri>().map(|OriginalUri(uri)| uri)
}

/// The path and query that this layer sees, behind the prefix that nested routers took off. `None`
/// if that prefix is uncertain.
///
/// If both together are the path that the first router saw, that path is returned byte for byte. If
/// not, middleware has rewritten the path, and the rewritten one counts.
pub(super) fn with_prefix(parts: &mut Parts, seen: PathAndQuery) -> Option<PathAndQuery> {
    let Some(nested) = parts.extensions.get::<NestedPath>().cloned() else { return Some(seen) };
    let prefix = prefix(nested.as_str(), parts)?;
    let original = original_uri(&parts.extensions).and_then(Uri::path_and_query);
    match original.filter(|original| is_joined_of(original, &prefix, &seen)) {
        Some(original) => Some(original.clone()),
        None => joined(&prefix, &seen),
    }
}

/// One part of a prefix.
enum PrefixSegment<'a> {
    /// Text of the pattern.
    Text(&'a str),
    /// The value of a parameter, decoded.
    Value(String),
}

/// The segments of a prefix, given its pattern.
fn prefix<'a>(pattern: &'a str, parts: &mut Parts) -> Option<Vec<PrefixSegment<'a>>> {
    let segments = || pattern.split('/').skip(1);
    let names: Vec<_> = segments().filter_map(parameter).collect();
    let mut values = match names.is_empty() {
        true => Vec::new(),
        false => values(&names, parts)?,
    }
    .into_iter();
    let segment = |text| match parameter(text) {
        Some(_) => values.next().map(PrefixSegment::Value),
        None => Some(PrefixSegment::Text(text)),
    };
    segments().map(segment).collect()
}

/// The name of the parameter that a segment stands for.
fn parameter(segment: &str) -> Option<&str> {
    let name = segment.strip_prefix('{')?.strip_suffix('}')?;
    (!name.starts_with(['{', '*'])).then_some(name)
}

/// The values of these parameters, in their order. `None` if a name occurs more than once, as the
/// values cannot be assigned then.
fn values(names: &[&str], parts: &mut Parts) -> Option<Vec<String>> {
    // This is ready at once, since the router has parsed the path.
    let params = RawPathParams::from_request_parts(parts, &()).now_or_never()?.ok()?;
    let named = params.iter().filter(|(name, _)| names.contains(name));
    let (found, values): (Vec<_>, _) = named.map(|(name, value)| (name, value.to_owned())).unzip();
    (found == names).then_some(values)
}

/// Whether a path consists of this prefix and the path that this layer sees.
fn is_joined_of(path: &PathAndQuery, prefix: &[PrefixSegment<'_>], seen: &PathAndQuery) -> bool {
    let rest = prefix.iter().try_fold(path.path(), |rest, segment| {
        let rest = rest.strip_prefix('/')?;
        match segment {
            PrefixSegment::Text(text) => {
                rest.strip_prefix(text).filter(|rest| ends_segment(text, rest))
            }
            PrefixSegment::Value(value) => {
                let (found, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                percent_decode_str(found).eq(value.bytes()).then_some(rest)
            }
        }
    });
    let is_seen = |rest: &str| match rest.starts_with('/') {
        true => rest == seen.path(),
        false => seen.path().strip_prefix('/') == Some(rest),
    };
    rest.is_some_and(is_seen) && path.query() == seen.query()
}

/// A prefix that ends with a slash has a last segment without text.
fn ends_segment(text: &str, rest: &str) -> bool {
    text.is_empty() || rest.is_empty() || rest.starts_with('/')
}

/// Joins a prefix with the path that this layer sees.
fn joined(prefix: &[PrefixSegment<'_>], seen: &PathAndQuery) -> Option<PathAndQuery> {
    let mut path = String::new();
    for segment in prefix {
        match segment {
            PrefixSegment::Text("") => {}
            PrefixSegment::Text(text) => push(&mut path, text),
            PrefixSegment::Value(value) => push(&mut path, value),
        }
    }
    path.push_str(seen.as_str());
    PathAndQuery::try_from(path).ok()
}

/// Appends a segment, and escapes bytes that a segment cannot have (RFC 3986, section 3.3).
fn push(path: &mut String, segment: &str) {
    path.push('/');
    for byte in segment.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte) {
            true => path.push(char::from(byte)),
            false => path.push_str(percent_encode_byte(byte)),
        }
    }
}
