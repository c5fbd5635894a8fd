//! How an answer came about, in the words of RFC 9211.

use std::fmt;
use std::time::Duration;

/// How an answer came about.
///
/// `Display` writes it as a member of the HTTP field `Cache-Status` (RFC 9211, section 2).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheStatus {
    /// Kept and fresh; nobody was asked and nothing waited for.
    Hit {
        /// How much longer it stays fresh, if the store said so: a plain look at Redis does not
        /// ask, to spare a command.
        fresh_for: Option<Duration>,
    },
    /// This request's own load.
    Led {
        /// Whether the answer has been kept. It is not if something newer or an invalidation came
        /// between, if it is too large or has no time to live, or if the store failed.
        stored: bool,
    },
    /// Answered by somebody else's load.
    Collapsed {
        /// Where that load ran.
        place: Place,
        /// How long this request waited for it.
        waited: Duration,
    },
    /// Loaded around the cache: not shared with other processes and not kept.
    Bypass(Bypass),
    /// Not answered: the request ended with an error.
    Failed,
}

/// Where the load ran that others were answered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// In this process.
    Here,
    /// In another process, or in another layer over the same store.
    Elsewhere,
}

/// Why a request went around the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bypass {
    /// The key function gave no key.
    NoKey,
    /// The store failed.
    StoreFailed,
    /// The wait for somebody else's load ran out, and the policy is to load then.
    WaitRanOut,
}

impl fmt::Display for CacheStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bellwether")?;
        match self {
            Self::Hit { fresh_for: Some(left) } => write!(f, "; hit; ttl={}", left.as_secs()),
            Self::Hit { fresh_for: None } => f.write_str("; hit"),
            Self::Led { stored: true } => f.write_str("; fwd=miss; stored"),
            Self::Led { stored: false } => f.write_str("; fwd=miss"),
            Self::Collapsed { place, .. } => write!(f, "; fwd=miss; collapsed; detail={place}"),
            Self::Bypass(why) => write!(f, "; fwd=bypass; detail={why}"),
            Self::Failed => f.write_str("; fwd=miss; detail=failed"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Here => "here",
            Self::Elsewhere => "elsewhere",
        })
    }
}

impl fmt::Display for Bypass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoKey => "no-key",
            Self::StoreFailed => "store-failed",
            Self::WaitRanOut => "wait-ran-out",
        })
    }
}
