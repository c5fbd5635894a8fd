//! The ways to answer a request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long an answer is fresh, in both caches. It is short, so that the page shows answers that expire.
pub(crate) const TTL: Duration = Duration::from_secs(5);

/// How a request is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    /// Every request queries the database.
    Unprotected,
    /// Through a cache of this process, whose callers share a query.
    Moka,
    /// Through bellwether.
    #[default]
    Protected,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Unprotected, Self::Moka, Self::Protected];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unprotected => "unprotected",
            Self::Moka => "moka",
            Self::Protected => "protected",
        }
    }
}
