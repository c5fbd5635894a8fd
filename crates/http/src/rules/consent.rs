//! How plainly a response says that it may be shared.

use http::HeaderMap;
use http::header::COOKIE;
use serde::{Deserialize, Serialize};

use super::directives::Directives;

/// How plainly a response says that it may be shared, from the least to the most.
///
/// RFC 9111 asks for that of answers to requests with `Authorization` (section 3.5). A cookie says
/// as much of its sender, so requests with one are held to the same: a guess never does for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Consent {
    /// Nothing: for how long it is fresh was guessed, or was said by the program.
    #[default]
    Unsaid,
    /// It says for how long it is fresh, and does not say that it is for one user.
    Timed,
    /// It says so: `public`, or `s-maxage`.
    Public,
}

impl Consent {
    /// What a response says, if it is known whether it says for how long it is fresh.
    pub(super) fn of(directives: &Directives, is_timed: bool) -> Self {
        if ["public", "s-maxage"].iter().any(|name| directives.has(name)) {
            return Self::Public;
        }
        if is_timed { Self::Timed } else { Self::Unsaid }
    }

    /// What an answer has to say to be shared with a request.
    pub(crate) fn needed_by(request: &HeaderMap, needs_public: bool) -> Self {
        match request.contains_key(COOKIE) {
            false => Self::Unsaid,
            true if needs_public => Self::Public,
            true => Self::Timed,
        }
    }
}
