//! What the layer knows of axum: the parameters of a route, what nested routers took off a path,
//! extractors as keys, and `CacheRejection`, an error of a cache as a response.

use std::fmt;

pub(super) use axum::extract::FromRequestParts;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, NestedPath, OriginalUri, RawPathParams};
use axum::response::{IntoResponse, Response};
use bellwether::adapter::warn_throttled;
use bellwether::{CacheError, ConfigError, Error, Key};
use futures_util::FutureExt;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Extensions, StatusCode, Uri};
use percent_encoding::{percent_decode_str, percent_encode_byte};

use super::refusal;

/// A template of a key: a name, with the parameters of the route in braces.
#[derive(Clone, Debug)]
pub(super) struct RouteTemplate {
    pub(super) text: String,
    names: Vec<String>,
}

impl RouteTemplate {
    pub(super) fn read(text: &str) -> Result<Self, ConfigError> {
        let error = |reason| ConfigError::Key { given: text.to_owned(), reason };
        let mut names = Vec::new();
        let mut left = text;
        while let Some(at) = left.find(['{', '}']) {
            let rest = left[at..].strip_prefix('{');
            let rest = rest.ok_or_else(|| error("a closing brace without an opening one"))?;
            let end = rest.find(['{', '}']).filter(|end| rest[*end..].starts_with('}'));
            let end = end.ok_or_else(|| error("an opening brace without a closing one"))?;
            let name = rest[..end].trim_start_matches('*');
            if name.is_empty() {
                return Err(error("a parameter without a name"));
            }
            names.push(name.to_owned());
            left = &rest[end + 1..];
        }
        Ok(Self { text: text.to_owned(), names })
    }

    /// The key of requests with these parameters.
    pub(super) fn fill(&self, values: &[(&str, &dyn fmt::Display)]) -> Result<Key, ConfigError> {
        let error = |name: &str, reason| ConfigError::Key { given: name.to_owned(), reason };
        for (at, (given, _)) in values.iter().enumerate() {
            if self.names.iter().all(|name| name != given) {
                return Err(error(given, "the template has no parameter of this name"));
            }
            if values[..at].iter().any(|(other, _)| other == given) {
                return Err(error(given, "this parameter has two values"));
            }
        }
        let value = |name: &str| {
            let found = values.iter().find(|(given, _)| *given == name);
            found.map(|(_, value)| value.to_string())
        };
        self.key_of(value).map_err(|name| error(&name, "this parameter has no value"))
    }

    /// The key of a request, or the name of a parameter that its route lacks.
    pub(super) fn key(&self, parts: &mut Parts) -> Result<Option<Key>, String> {
        // This is ready at once, since the router has parsed the path.
        let params = match RawPathParams::from_request_parts(parts, &()).now_or_never() {
            // The request bypasses the cache, so that the handler can reject it.
            Some(Err(RawPathParamsRejection::InvalidUtf8InPathParam(_))) => return Ok(None),
            params => params.and_then(Result::ok),
        };
        // By a wildcard, an escaped slash is the same as a slash, but not for a handler that sees the URI.
        let is_wild = |path: &MatchedPath| path.as_str().contains("{*");
        if parts.extensions.get().is_some_and(is_wild)
            && parts.uri.path().to_ascii_lowercase().contains("%2f")
        {
            return Ok(None);
        }
        let value = |name: &str| {
            let found = params.as_ref()?.iter().find(|(found, _)| *found == name);
            found.map(|(_, value)| value.to_owned())
        };
        self.key_of(value).map(Some)
    }

    /// The key with the values that a function finds, or the name of a parameter that has none.
    fn key_of(&self, value: impl Fn(&str) -> Option<String>) -> Result<Key, String> {
        self.names.iter().try_fold(Key::of(&self.text), |key, name| {
            Ok(key.with(value(name).ok_or_else(|| name.clone())?))
        })
    }
}

/// What an extractor returns, unless it rejects the request or has to wait.
pub(super) fn extracted<E: FromRequestParts<()>>(parts: &mut Parts) -> Option<E> {
    E::from_request_parts(parts, &()).now_or_never()?.ok()
}

/// The URI with which a request came to the first router.
pub(super) fn original_uri(extensions: &Extensions) -> Option<&Uri> {
    extensions.get::<OriginalUri>().map(|OriginalUri(uri)| uri)
}

/// The same, to change it.
pub(super) fn original_uri_mut(extensions: &mut Extensions) -> Option<&mut Uri> {
    extensions.get_mut::<OriginalUri>().map(|OriginalUri(uri)| uri)
}

/// The path and query that this layer sees, behind the prefix that nested routers took off. `None`
/// if that prefix is uncertain.
///
/// `Router::nest` strips its prefix, so two routers with the same routes see the same paths. The prefix
/// is known by the pattern of the nested path and by the parameters of the route. If both together are
/// the path that the first router saw, that path is returned byte for byte. If not, middleware has
/// rewritten the path, and the rewritten one counts.
pub(super) fn with_prefix(parts: &mut Parts, seen: PathAndQuery) -> Option<PathAndQuery> {
    let Some(nested) = parts.extensions.get::<NestedPath>().cloned() else { return Some(seen) };
    let prefix = prefix(nested.as_str(), parts)?;
    let is_joined = |original: &&PathAndQuery| {
        let path = original.path();
        // A nested router sees `/` of a request for its prefix alone.
        let rest = path.strip_suffix(seen.path()).or_else(|| (seen.path() == "/").then_some(path));
        let is_prefix = |rest| percent_decode_str(rest).eq(percent_decode_str(&prefix));
        rest.is_some_and(is_prefix) && original.query() == seen.query()
    };
    let original = original_uri(&parts.extensions).and_then(Uri::path_and_query);
    match original.filter(is_joined) {
        Some(original) => Some(original.clone()),
        None => PathAndQuery::try_from(prefix + seen.as_str()).ok(),
    }
}

/// A prefix, given its pattern. Bytes that a segment cannot have are escaped (RFC 3986, section 3.3).
fn prefix(pattern: &str, parts: &mut Parts) -> Option<String> {
    let segments = || pattern.split('/').filter(|segment| !segment.is_empty());
    let names: Vec<_> = segments().filter_map(parameter).collect();
    let mut values = match names.is_empty() {
        true => Vec::new(),
        false => values(&names, parts)?,
    }
    .into_iter();
    let mut path = String::new();
    for segment in segments() {
        let value = parameter(segment).and_then(|_| values.next());
        path.push('/');
        push_segment(&mut path, value.as_deref().unwrap_or(segment).bytes());
    }
    Some(path)
}

/// A path of which the router decodes the segments, with those escapes only that are needed.
pub(super) fn normal_path(path: &str) -> String {
    let mut normal = String::new();
    for (nth, segment) in path.split('/').enumerate() {
        if nth > 0 {
            normal.push('/');
        }
        push_segment(&mut normal, percent_decode_str(segment));
    }
    normal
}

fn push_segment(path: &mut String, segment: impl Iterator<Item = u8>) {
    for byte in segment {
        match byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte) {
            true => path.push(char::from(byte)),
            false => path.push_str(percent_encode_byte(byte)),
        }
    }
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
    let params: RawPathParams = extracted(parts)?;
    let named = params.iter().filter(|(name, _)| names.contains(name));
    let (found, values): (Vec<_>, _) = named.map(|(name, value)| (name, value.to_owned())).unzip();
    (found == names).then_some(values)
}

/// An error of a [`Cache`](bellwether::Cache) or of a service behind a layer, as a response of axum.
/// A handler returns it by `?`:
///
/// ```
/// use axum::Json;
/// use axum::extract::{Path, State};
/// use bellwether::Cache;
/// use bellwether_http::CacheRejection;
/// # async fn query(sku: u64) -> Result<String, std::io::Error> { Ok(format!("item {sku}")) }
///
/// async fn item(
///     State(items): State<Cache<u64, String>>,
///     Path(sku): Path<u64>,
/// ) -> Result<Json<String>, CacheRejection> {
///     Ok(Json(items.get_or_load(sku, async move || query(sku).await).await?))
/// }
/// # let _ = axum::Router::<Cache<u64, String>>::new().route("/{sku}", axum::routing::get(item));
/// ```
///
/// | error | status |
/// |---|---|
/// | of the class [`NotFound`](bellwether::ErrorClass::NotFound), here or in another process | 404 |
/// | any other error of the loader, its panic, or a load that was lost | 502 |
/// | a load, a wait or a deadline that took too long | 504 |
/// | a load that failed a moment ago, a bound that is reached, a store that failed | 503 |
/// | a key that is too long, or no runtime | 500 |
///
/// The body says which of these it is. It has no text of the error, which may hold secrets and is
/// logged instead.
#[derive(Debug)]
pub struct CacheRejection {
    status: StatusCode,
    text: &'static str,
}

impl CacheRejection {
    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        self.status
    }
}

impl<E> From<Error<E>> for CacheRejection {
    fn from(error: Error<E>) -> Self {
        match error {
            error if error.is_not_found() => {
                Self { status: StatusCode::NOT_FOUND, text: "there is no such thing\n" }
            }
            Error::Load(error) => {
                warn_throttled!(target: "bellwether::http", %error, "a load failed");
                Self { status: StatusCode::BAD_GATEWAY, text: "the source failed\n" }
            }
            Error::Cache(error) => error.into(),
        }
    }
}

impl From<CacheError> for CacheRejection {
    fn from(error: CacheError) -> Self {
        warn_throttled!(target: "bellwether::http", %error, "the cache has no answer");
        let (status, text, _) = refusal::reason(&error);
        Self { status, text }
    }
}

impl IntoResponse for CacheRejection {
    fn into_response(self) -> Response {
        (self.status, self.text).into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bellwether::{Cache, CacheErrorKind, ErrorClass, MemoryStore};

    use super::*;

    fn status_of(kind: CacheErrorKind) -> u16 {
        let error: Error<fmt::Error> = CacheError::new(kind, "secret").into();
        CacheRejection::from(error).into_response().status().as_u16()
    }

    #[test]
    fn each_kind_of_error_has_its_status() {
        assert_eq!(status_of(CacheErrorKind::NotFound), 404);
        assert_eq!(status_of(CacheErrorKind::WaitTimedOut), 504);
        assert_eq!(status_of(CacheErrorKind::Full), 503);
        assert_eq!(status_of(CacheErrorKind::LoaderPanicked), 502);
        assert_eq!(status_of(CacheErrorKind::KeyTooLong), 500);
    }

    #[tokio::test]
    async fn an_error_of_the_loader_is_a_404_if_the_program_says_that_there_is_none() {
        for (class, status) in [(ErrorClass::NotFound, 404), (ErrorClass::Failure, 502)] {
            let cache: Cache<u64, u64> = Cache::builder("item", MemoryStore::new(10))
                .ttl(Duration::from_secs(60))
                .classify_error(move |_: &fmt::Error| class)
                .build()
                .expect("options");
            let error = cache.get_or_load(1, async || Err(fmt::Error)).await.unwrap_err();
            assert_eq!(CacheRejection::from(error).status(), status);
        }
    }
}
