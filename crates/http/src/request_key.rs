//! `RequestKey`: how the program makes the key of a request.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bellwether::adapter::FirstError;
use bellwether::{CacheKey, ConfigError, Key};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

#[cfg(feature = "axum")]
use super::router;
use super::rules::Credentials;
use super::target::{host_of, rewrite, routed};

/// The key of a request: everything in a request on which the response depends.
///
/// Neither the method nor the scheme is part of it, and the [host](Self::host) only if you add it. HEAD is
/// answered by the stored response to GET. For responses that depend on the scheme, as a redirect to `https`,
/// add it by a [function](Self::by), or put the layer below what answers so.
///
/// # Changes
/// An unsafe request (PUT, for example) that succeeds removes the response under one key: the one
/// that the request itself makes, by the same rules. Responses of the same path with other values of
/// a [parameter](Self::query) or a [field](Self::header) stay until they expire, unless the program
/// [invalidates](bellwether::service::Handle::invalidate) them by their keys.
///
/// # One form
/// The origin answers one request for all with the same key. So it gets that request as the key has it:
/// the host in lower case and without its default port, and of the query only the parameters that are
/// [named](Self::query), in their order. The path of a [template](Self::template) has the usual escapes.
/// For a key of a [function](Self::by) or an [extractor](Self::extract), which may use all of the request,
/// path and query stay as they are.
///
/// ```
/// use bellwether_http::RequestKey;
///
/// // `/items?page=2&q=wool` and `/items?q=wool&page=2&utm_source=x` have the same key.
/// let key = RequestKey::path().query(["page", "q"]).header("accept-language");
/// # let _ = key;
/// ```
#[derive(Clone)]
pub struct RequestKey {
    base: Base,
    /// Whether hosts have responses of their own.
    pub(super) has_host: bool,
    query: Vec<String>,
    headers: Vec<HeaderName>,
    ignores_credentials: bool,
    pub(super) wrong: FirstError,
}

#[derive(Clone)]
enum Base {
    Path,
    By(Arc<By>),
    #[cfg(feature = "axum")]
    RouteTemplate(router::RouteTemplate),
}

type By = dyn Fn(&mut Parts) -> Option<Key> + Send + Sync;

impl RequestKey {
    /// The path as the layer sees it, and nothing of the query: `Key::of("path").with(path)`. What
    /// [`Router::nest`](super::guide#where-to-put-it) took off is part of it.
    pub fn path() -> Self {
        Self::on(Base::Path)
    }

    /// A key that a function makes. A request without one bypasses the cache. For the host, add
    /// [`host`](Self::host): over HTTP/2 there is no field `Host`.
    pub fn by<F>(key_of: F) -> Self
    where
        F: Fn(&Parts) -> Option<Key> + Send + Sync + 'static,
    {
        Self::on(Base::By(Arc::new(move |parts: &mut Parts| key_of(parts))))
    }

    /// The parameters of an axum route, such as `catalog/{warehouse}/{sku}`: a name for this kind of
    /// answer, with the parameters in braces. The key is [`Key::of`] the template, with each
    /// parameter as decoded text, in this order, so two templates never share a key.
    ///
    /// A request on whose route a parameter is missing is answered by an error (500) that names it.
    /// One whose parameters are not UTF-8 bypasses the cache, so that the handler can reject it. So does
    /// one with an escaped slash on a route with a wildcard: decoded, it is like another path.
    ///
    /// # Errors
    /// If a brace has no counterpart, or a parameter no name.
    #[cfg(feature = "axum")]
    pub fn template(template: &str) -> Result<Self, ConfigError> {
        Ok(Self::on(Base::RouteTemplate(router::RouteTemplate::read(template)?)))
    }

    /// A key made of what an axum extractor returns. A request that the extractor rejects bypasses
    /// the cache, so that the handler can reject it itself.
    ///
    /// The extractor has no state: `E` is `FromRequestParts<()>`. It must not wait, as for a session in a
    /// database: a request for which it does bypasses the cache. Let middleware above the layer ask, and
    /// extract its `Extension`.
    #[cfg(feature = "axum")]
    pub fn extract<E>(key_of: impl Fn(E) -> Key + Send + Sync + 'static) -> Self
    where
        E: router::FromRequestParts<()>,
    {
        Self::on(Base::By(Arc::new(move |parts: &mut Parts| router::extracted(parts).map(&key_of))))
    }

    fn on(base: Base) -> Self {
        Self {
            base,
            has_host: false,
            query: Vec::new(),
            headers: Vec::new(),
            ignores_credentials: false,
            wrong: FirstError::default(),
        }
    }

    /// Adds the host that the request is for, with its port unless that is the default of its scheme, or
    /// 80 or 443 of a request that states none. Without it, hosts share their responses. A request whose URI and `Host` name different hosts bypasses the
    /// cache.
    #[must_use]
    pub fn host(self) -> Self {
        Self { has_host: true, ..self }
    }

    /// Adds parameters of the query: each by how often it occurs, and by all of its values as they
    /// are sent. The order of different parameters does not matter, and parameters that are not
    /// named here [do not reach the origin](Self#one-form). `?page` and `?page=` are different keys, as they are different URIs (RFC
    /// 3986, section 6.2).
    ///
    /// An unsafe request with other values of them [does not remove](Self#changes) the response.
    #[must_use]
    pub fn query<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.query.extend(names.into_iter().map(Into::into));
        self
    }

    /// Adds a header field of the request: by how many values it has, and by each value byte for
    /// byte. If it is a [credential](super::HttpCacheLayerBuilder::credentials), requests with it no longer
    /// bypass the cache.
    ///
    /// An unsafe request with another value of it [does not remove](Self#changes) the response.
    ///
    /// If this is not a valid name of a header field, or `host` (add the [`host`](Self::host)), what uses
    /// this key fails: [`build`](super::HttpCacheLayerBuilder::build), [`of`](Self::of) or `fill`.
    #[must_use]
    pub fn header(mut self, name: &str) -> Self {
        let parsed = match field_name(name) {
            Ok(header::HOST) => {
                let reason = "over HTTP/2 there is no such field: use `RequestKey::host`";
                Err(ConfigError::Key { given: name.to_owned(), reason })
            }
            parsed => parsed.map(|parsed| [&self.headers[..], &[parsed]].concat()),
        };
        self.wrong.set(&mut self.headers, parsed);
        self
    }

    /// Says that the response does not depend on the caller, though requests may have
    /// [credentials](super::HttpCacheLayerBuilder::credentials). Without this, and unless the field is [part of
    /// the key](Self::header), a request with one of them bypasses the cache, since the response may be
    /// for its caller only.
    #[must_use]
    pub fn ignoring_credentials(self) -> Self {
        Self { ignores_credentials: true, ..self }
    }

    /// The key of requests like this one: for a key of the [path](Self::path) or of a
    /// [function](Self::by).
    ///
    /// ```
    /// use bellwether_http::RequestKey;
    /// use http::Request;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pages = RequestKey::path().query(["page"]).header("accept-language");
    ///
    /// let german = Request::get("/shelf/top%2010?page=2").header("accept-language", "de").body(())?;
    /// let key = pages.of(german)?;
    /// // cache.invalidate(&key).await?;
    /// # assert_eq!(key, bellwether::Key::of("path").with("/shelf/top%2010")
    /// #     .with("page").with(1).with(Some("2")).with("accept-language").with(1).with(&b"de"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If a [field](Self::header) is not valid, if a request like this has no key, or one that is too
    /// long, or if axum's router has a part in it.
    pub fn of<B>(&self, request: Request<B>) -> Result<Key, ConfigError> {
        self.wrong.result()?;
        let mut parts = request.into_parts().0;
        self.certain(self.derived(&mut parts))
    }

    /// The key of requests like this one whose route has these parameters, decoded: for a key of a
    /// [template](Self::template). The path of the request does not matter.
    ///
    /// ```
    /// use bellwether_http::RequestKey;
    /// use http::Request;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let items = RequestKey::template("catalog/{warehouse}/{sku}")?.query(["currency"]);
    ///
    /// let in_euros = Request::get("/?currency=EUR").body(())?;
    /// let key = items.fill(&[("warehouse", &"north"), ("sku", &42)], in_euros)?;
    /// // cache.invalidate(&key).await?;
    /// # assert_eq!(key, bellwether::Key::of("catalog/{warehouse}/{sku}")
    /// #     .with("north").with("42").with("currency").with(1).with(Some("EUR")));
    ///
    /// let error = items.fill(&[("warehouse", &"north")], Request::new(())).unwrap_err();
    /// assert_eq!(error.to_string(), r#"key "sku": this parameter has no value"#);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If a [field](Self::header) is not valid, if this is not a key of a template, if a parameter has no
    /// value or two, or if there is a value for another parameter. The error names it.
    #[cfg(feature = "axum")]
    pub fn fill<B>(
        &self,
        values: &[(&str, &dyn fmt::Display)],
        request: Request<B>,
    ) -> Result<Key, ConfigError> {
        self.wrong.result()?;
        let key = match &self.base {
            Base::RouteTemplate(template) => Some(template.fill(values)?),
            _ => None,
        };
        self.certain(Ok(self.completed(key, &request.into_parts().0)))
    }

    fn certain(&self, derived: DerivedKey) -> Result<Key, ConfigError> {
        let reason = "a request like this has no key of this kind";
        derived
            .ok()
            .flatten()
            .ok_or_else(|| ConfigError::Key { given: format!("{self:?}"), reason })
    }

    /// Whether the request has credentials that are neither part of the key nor ignored.
    pub(super) fn is_personal(&self, request: &HeaderMap, credentials: &Credentials) -> bool {
        !self.ignores_credentials && credentials.are_besides(&self.headers, request)
    }

    /// The key of a request.
    pub(super) fn derived(&self, parts: &mut Parts) -> DerivedKey {
        let key = match &self.base {
            Base::Path => routed(parts).map(|routed| Key::of("path").with(routed.path())),
            Base::By(key_of) => key_of(parts),
            #[cfg(feature = "axum")]
            Base::RouteTemplate(template) => match template.key(parts) {
                Ok(key) => key,
                unknown => return unknown,
            },
        };
        Ok(self.completed(key, parts))
    }

    /// Writes a request as its key has it: the path of a template with the usual escapes, and of the
    /// query what is named. The origin answers for all requests with that key, so it must not see what
    /// else one of them says. A function may use all of its request.
    pub(super) fn normalize(&self, parts: &mut Parts) {
        let path_of = match &self.base {
            Base::Path => str::to_owned,
            #[cfg(feature = "axum")]
            Base::RouteTemplate(_) => router::normal_path,
            _ => return,
        };
        rewrite(parts, |uri| {
            let Some(seen) = &uri.path_and_query else { return };
            let mut normal = path_of(seen.path());
            let mut separator = '?';
            for (nth, name) in self.query.iter().enumerate() {
                let is_first = !self.query[..nth].contains(name);
                for value in query_values(seen.query(), name).filter(|_| is_first) {
                    normal.push(separator);
                    normal.extend(utf8_percent_encode(name, IN_NAMES));
                    value.into_iter().for_each(|value| normal.extend(["=", value]));
                    separator = '&';
                }
            }
            uri.path_and_query = normal.parse().ok().or_else(|| uri.path_and_query.take());
        });
    }

    /// A key with what else of the request is part of it.
    fn completed(&self, key: Option<Key>, parts: &Parts) -> Option<Key> {
        let mut key = key?;
        if self.has_host {
            key = key.with("host").with(host_of(parts)?.as_ref().map(Authority::as_str));
        }
        for name in &self.query {
            key = with_values(key, name, query_values(parts.uri.query(), name).collect());
        }
        for name in &self.headers {
            let values = parts.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
            key = with_values::<&[u8]>(key, name.as_str(), values);
        }
        Some(key).filter(|key| key.byte_len() <= Key::MAX_BYTES)
    }
}

/// The name of a header field.
pub(super) fn field_name(name: &str) -> Result<HeaderName, ConfigError> {
    let reason = "this is not a valid name of a header field";
    name.parse().map_err(|_| ConfigError::Key { given: name.to_owned(), reason })
}

/// The key of a request. If there is none, the request bypasses the cache. The error is the name of a
/// parameter that its route lacks.
pub(super) type DerivedKey = Result<Option<Key>, String>;

fn with_values<P: CacheKey>(key: Key, name: &str, values: Vec<P>) -> Key {
    let key = key.with(name).with(values.len());
    values.into_iter().fold(key, |key, value| key.with(value))
}

/// The values of a parameter of the query, `None` where it stands alone. Its name is compared decoded,
/// as the handler does.
fn query_values<'a>(query: Option<&'a str>, name: &str) -> impl Iterator<Item = Option<&'a str>> {
    let pairs = query.unwrap_or_default().split('&').map(|pair| match pair.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (pair, None),
    });
    pairs.filter(move |(found, _)| decoded(found) == name).map(|(_, value)| value)
}

/// What is escaped in the name of a parameter.
const IN_NAMES: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'+')
    .add(b'<')
    .add(b'=')
    .add(b'>');

fn decoded(name: &str) -> Cow<'_, str> {
    if !name.contains(['%', '+']) {
        return Cow::Borrowed(name);
    }
    let spaced = name.replace('+', " ");
    Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
}

impl fmt::Debug for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = match &self.base {
            Base::Path => "path",
            Base::By(_) => "function",
            #[cfg(feature = "axum")]
            Base::RouteTemplate(template) => &template.text,
        };
        f.debug_struct("RequestKey")
            .field("base", &base)
            .field("has_host", &self.has_host)
            .field("query", &self.query)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}
