//! `FilledKey`: the key of requests that the program describes.

use std::fmt;

use bellwether::{ConfigError, Key, KeyPart};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::target::host_of_authority;

/// The key of the requests that the program describes by their values, to invalidate their response.
/// Made by [`RequestKey::at`](super::RequestKey::at), or by `RequestKey::fill` of a template of axum.
#[derive(Clone)]
pub struct FilledKey {
    base: Key,
    /// The host, if it is part of the key.
    host: Option<Option<Authority>>,
    /// The parameters of the query, in the order of the key, with their values.
    query: Vec<(String, Vec<Option<String>>)>,
    names: Vec<HeaderName>,
    headers: HeaderMap,
}

impl FilledKey {
    pub(super) fn new(base: Key, has_host: bool, query: &[String], names: &[HeaderName]) -> Self {
        let query = query.iter().map(|name| (name.clone(), Vec::new())).collect();
        Self {
            base,
            host: has_host.then_some(None),
            query,
            names: names.to_vec(),
            headers: HeaderMap::new(),
        }
    }

    /// Adds the host, such as `shop.example` or `shop.example:8080`. Without it, this is the key of
    /// requests that name no host.
    ///
    /// # Errors
    /// If the key does not have the host, or this is none.
    pub fn host(mut self, authority: &str) -> Result<Self, ConfigError> {
        if self.host.is_none() {
            return Err(unknown(authority, "the host is not part of this key"));
        }
        let host = host_of_authority(authority);
        self.host = Some(Some(host.ok_or_else(|| unknown(authority, "this is not a host"))?));
        Ok(self)
    }

    /// Adds a parameter of the query, with its value as clients send it: percent-encoded, or `None`
    /// for one without `=`. Add it once for each time that it occurs. A parameter that is not added
    /// does not occur.
    ///
    /// # Errors
    /// If the key does not have this parameter.
    pub fn query<'a>(
        mut self,
        name: &str,
        value: impl Into<Option<&'a str>>,
    ) -> Result<Self, ConfigError> {
        let values = self.query.iter_mut().filter(|(known, _)| known == name);
        let values: Vec<_> = values.collect();
        if values.is_empty() {
            return Err(unknown(name, "the key has no query parameter of this name"));
        }
        let value = value.into().map(str::to_owned);
        values.into_iter().for_each(|(_, values)| values.push(value.clone()));
        Ok(self)
    }

    /// Adds a header field of the requests, with its value. Add it once for each line that they have.
    ///
    /// # Errors
    /// If the key does not have this field, or this is not a valid value.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, ConfigError> {
        let Some(known) = self.names.iter().find(|known| known.as_str().eq_ignore_ascii_case(name))
        else {
            return Err(unknown(name, "the key has no header field of this name"));
        };
        let value = HeaderValue::from_str(value)
            .map_err(|_| unknown(name, "this is not a valid value of a header field"))?;
        self.headers.append(known.clone(), value);
        Ok(self)
    }

    /// The key, for a [`Handle`](bellwether::Handle).
    pub fn key(self) -> Key {
        let Self { base, host, query, names, headers } = self;
        let key = match host {
            Some(host) => with_host(base, host.as_ref()),
            None => base,
        };
        let key =
            query.into_iter().fold(key, |key, (name, values)| with_values(key, &name, values));
        names.iter().fold(key, |key, name| with_field(key, &headers, name))
    }
}

/// Shows no values.
impl fmt::Debug for FilledKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilledKey").field("base", &self.base).finish_non_exhaustive()
    }
}

fn unknown(name: &str, reason: &'static str) -> ConfigError {
    ConfigError::Key { given: name.to_owned(), reason }
}

/// Adds the host to a key.
pub(super) fn with_host(key: Key, host: Option<&Authority>) -> Key {
    key.with("host").with(host.map(Authority::as_str))
}

/// Adds a name to a key, and how many values it has, and each of them.
pub(super) fn with_values<P: KeyPart>(key: Key, name: &str, values: Vec<P>) -> Key {
    let key = key.with(name).with(values.len());
    values.into_iter().fold(key, |key, value| key.with(value))
}

/// Adds a header field byte for byte, since the handler may read it in any way.
pub(super) fn with_field(key: Key, request: &HeaderMap, name: &HeaderName) -> Key {
    let values = request.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    with_values::<&[u8]>(key, name.as_str(), values)
}
