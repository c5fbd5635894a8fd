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
use super::template::{NamedTemplate, NamedValue, value_of};

/// A template of a key: a name, with the parameters of the route in braces.
#[derive(Clone, Debug)]
pub(super) struct RouteTemplate(NamedTemplate);

impl RouteTemplate {
    pub(super) fn read(text: &str) -> Result<Self, ConfigError> {
        Ok(Self(NamedTemplate::read(text)?))
    }

    pub(super) fn text(&self) -> &str {
        self.0.text()
    }

    /// The key of requests with these parameters.
    pub(super) fn key_of(&self, values: &[NamedValue<'_>]) -> Result<Key, ConfigError> {
        self.0.check(values)?;
        let values = self.0.names().map(|name| value_of(name, values));
        Ok(values.fold(Key::of(self.0.text()), |key, value| key.with(value)))
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
        let value_in = |name: &str| {
            let params = params.as_ref()?;
            params.iter().find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
        };
        let mut key = Key::of(self.0.text());
        for name in self.0.names() {
            let Some(value) = value_in(name) else { return DerivedKey::Unknown(name.to_owned()) };
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
