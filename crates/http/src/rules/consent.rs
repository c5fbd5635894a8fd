//! How explicitly a response permits sharing.

use http::HeaderMap;
use http::header::COOKIE;
use serde::{Deserialize, Serialize};

use super::directives::Directives;

/// How explicitly a response permits sharing, from the least to the most.
///
/// RFC 9111 demands permission for responses to requests with `Authorization` (section 3.5). A cookie
/// identifies its sender as well, so requests with one demand it too: a guessed lifetime does not
/// suffice for them.
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
    pub(crate) fn needed_by(request: &HeaderMap, needs_public: bool) -> Self {
        match request.contains_key(COOKIE) {
            false => Self::Unsaid,
            true if needs_public => Self::Public,
            true => Self::Timed,
        }
    }
}
