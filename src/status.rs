//! How an answer came about, in the words of RFC 9211.

use std::fmt;
use std::time::Duration;

/// How an answer came about.
///
/// `Display` writes it as a member of the HTTP field `Cache-Status` (RFC 9211, section 2).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheStatus {
    /// Stored and fresh: the answer took no load and no wait.
    Hit {
        /// How much longer it stays fresh, if the store said so: a plain look at Redis does not
        /// ask, to spare a command.
        fresh_for: Option<Duration>,
    },
    /// Kept and stale, and given out all the same.
    Stale {
        /// Why that was good enough.
        why: StaleReason,
        /// How long it has not been fresh any more.
        stale_for: Duration,
    },
    /// This request's own load.
    Led {
        /// Whether the answer has been kept. It is not if something newer or an invalidation came
        /// between, if it is too large or has no time to live, or if the store failed.
        stored: bool,
    },
    /// Answered by the load of another caller.
    Collapsed {
        /// Where that load ran.
        place: LoadLocation,
        /// How long this request waited for it.
        waited: Duration,
    },
    /// Loaded around the cache: not shared with other processes and not kept.
    Bypass(BypassReason),
    /// Not answered: the request ended with an error.
    Failed,
}

/// Why a stale answer was given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StaleReason {
    /// A load replaces it in the background (RFC 5861, section 3).
    Revalidating,
    /// The load that should replace it failed, just now or a moment ago (RFC 5861, section 4).
    LoadFailed,
    /// The load that replaces it takes longer than [`slow_load`](crate::ReadThroughLayer::slow_load).
    LoadSlow,
    /// The wait ran out, or the caller's deadline came or left no time for it.
    WaitRanOut,
    /// As many were under way as there may be.
    NoRoom,
}

/// Where the load ran that others were answered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LoadLocation {
    /// In this process.
    Local,
    /// In another process, or in another layer over the same store.
    Remote,
}

/// Why a request went around the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BypassReason {
    /// The key function gave no key.
    NoKey,
    /// Answers for this key are not kept.
    NotKept,
    /// The store failed.
    StoreFailed,
    /// The wait for the load of another caller ran out, and the policy is to load then.
    WaitRanOut,
}

impl fmt::Display for CacheStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bellwether")?;
        match self {
            Self::Hit { fresh_for: Some(left) } => write!(f, "; hit; ttl={}", left.as_secs()),
            Self::Hit { fresh_for: None } => f.write_str("; hit"),
            Self::Stale { why, stale_for } => {
                let how = if *why == StaleReason::Revalidating { "hit" } else { "fwd=stale" };
                write!(f, "; {how}; ttl=-{}; detail={why}", stale_for.as_secs())
            }
            Self::Led { stored: true } => f.write_str("; fwd=miss; stored"),
            Self::Led { stored: false } => f.write_str("; fwd=miss"),
            Self::Collapsed { place, .. } => write!(f, "; fwd=miss; collapsed; detail={place}"),
            Self::Bypass(why) => write!(f, "; fwd=bypass; detail={why}"),
            Self::Failed => f.write_str("; fwd=miss; detail=failed"),
        }
    }
}

impl fmt::Display for StaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Revalidating => "revalidating",
            Self::LoadFailed => "load-failed",
            Self::LoadSlow => "load-slow",
            Self::WaitRanOut => "wait-ran-out",
            Self::NoRoom => "no-room",
        })
    }
}

impl fmt::Display for LoadLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Remote => "remote",
        })
    }
}

impl fmt::Display for BypassReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoKey => "no-key",
            Self::NotKept => "not-kept",
            Self::StoreFailed => "store-failed",
            Self::WaitRanOut => "wait-ran-out",
        })
    }
}
