//! How explicitly a response permits sharing.

use std::sync::Arc;

use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderName};
use serde::{Deserialize, Serialize};

use super::directives::Directives;

/// How explicitly a response permits sharing, from the least to the most.
///
/// RFC 9111 demands permission for responses to requests with `Authorization` (section 3.5). Other
/// credentials and cookies identify their sender as well, so requests with one demand it too: a guessed
/// lifetime does not suffice for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Consent {
    /// It states nothing. Its freshness lifetime was guessed, or stated by the program.
    #[default]
    Unsaid,
    /// It states a freshness lifetime, and does not say `private`.
    Timed,
    /// It says `public` or `s-maxage`.
    Public,
}

impl Consent {
    /// The consent of a response. `is_timed`: it states a freshness lifetime.
    pub(super) fn of(directives: &Directives, is_timed: bool) -> Self {
        if ["public", "s-maxage"].iter().any(|name| directives.has(name)) {
            return Self::Public;
        }
        if is_timed { Self::Timed } else { Self::Unsaid }
    }

    /// The consent that a response needs to be shared with a request.
    pub(crate) fn needed_by(
        request: &HeaderMap,
        credentials: &Credentials,
        needs_public: bool,
    ) -> Self {
        match credentials.are_in(request) {
            false => Self::Unsaid,
            true if needs_public && request.contains_key(COOKIE) => Self::Public,
            true => Self::Timed,
        }
    }
}

/// Which request header fields are credentials.
#[derive(Clone, Debug)]
pub(crate) struct Credentials(Arc<[HeaderName]>);

impl Credentials {
    /// These and others.
    pub(crate) fn with(&self, others: impl IntoIterator<Item = HeaderName>) -> Self {
        Self(self.0.iter().cloned().chain(others).collect())
    }

    /// Whether a request has any.
    pub(crate) fn are_in(&self, request: &HeaderMap) -> bool {
        self.are_besides(&[], request)
    }

    /// Whether a request header field is one.
    pub(super) fn contain(&self, name: &HeaderName) -> bool {
        self.0.contains(name)
    }

    /// Whether a request has any besides cookies.
    pub(super) fn authorize(&self, request: &HeaderMap) -> bool {
        self.are_besides(&[COOKIE], request)
    }

    /// Whether a request has any besides these fields.
    pub(crate) fn are_besides(&self, known: &[HeaderName], request: &HeaderMap) -> bool {
        self.0.iter().any(|name| request.contains_key(name) && !known.contains(name))
    }
}

impl Default for Credentials {
    fn default() -> Self {
        let [key, token] = ["x-api-key", "x-auth-token"].map(HeaderName::from_static);
        Self(Arc::new([AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE, key, token]))
    }
}
