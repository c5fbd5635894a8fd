//! Keys made by axum: of the parameters of a route, or by an extractor.

use std::fmt;
use std::sync::Arc;

pub(super) use axum::extract::FromRequestParts;
use axum::extract::RawPathParams;
use axum::extract::rejection::RawPathParamsRejection;
use bellwether::{ConfigError, Key};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::request::Parts;

use super::derived_key::DerivedKey;

/// A template of a key: a name, with the parameters of the route in braces.
#[derive(Clone, Debug)]
pub(super) struct RouteTemplate {
    text: String,
    names: Vec<String>,
}

impl RouteTemplate {
    pub(super) fn read(text: &str) -> Result<Self, ConfigError> {
        let error = |reason| ConfigError::Key { given: text.to_owned(), reason };
        let mut names = Vec::new();
        let mut left = text;
        while let Some(at) = left.find(['{', '}']) {
            if left[at..].starts_with('}') {
                return Err(error("a closing brace without an opening one"));
            }
            let rest = &left[at + 1..];
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

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The key of a request.
    pub(super) fn fill(&self, parts: &mut Parts) -> DerivedKey {
        // This is ready at once, since the router has parsed the path.
        let params = match RawPathParams::from_request_parts(parts, &()).now_or_never() {
            // The request bypasses the cache, so that the handler can reject it.
            Some(Err(RawPathParamsRejection::InvalidUtf8InPathParam(_))) => {
                return DerivedKey::Nothing;
            }
            params => params.and_then(Result::ok),
        };
        let value_of = |name: &str| {
            let params = params.as_ref()?;
            params.iter().find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
        };
        let mut key = Key::of(&self.text);
        for name in &self.names {
            let Some(value) = value_of(name) else { return DerivedKey::Unknown(name.clone()) };
            key = key.with(value);
        }
        DerivedKey::Key(key)
    }
}

/// A key made of what an extractor returns.
#[derive(Clone)]
pub(super) struct Extracted(Arc<Extract>);

type Extract = dyn for<'a> Fn(&'a mut Parts) -> BoxFuture<'a, Option<Key>> + Send + Sync;

impl Extracted {
    pub(super) fn by<E>(key_of: impl Fn(E) -> Key + Send + Sync + 'static) -> Self
    where
        E: FromRequestParts<()> + Send + 'static,
    {
        let key_of = Arc::new(key_of);
        Self(Arc::new(move |parts| {
            let key_of = Arc::clone(&key_of);
            Box::pin(async move { Some(key_of(E::from_request_parts(parts, &()).await.ok()?)) })
        }))
    }

    pub(super) async fn of(&self, parts: &mut Parts) -> Option<Key> {
        (self.0)(parts).await
    }
}

impl fmt::Debug for Extracted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extracted").finish_non_exhaustive()
    }
}
