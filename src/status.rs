//! `CacheStatus`: how an answer came about, as in RFC 9211.

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
        /// How much longer it stays fresh, if the store said so. A plain lookup in Redis does not,
        /// since that would cost a command.
        fresh_for: Option<Duration>,
    },
    /// Stored and stale, and served all the same.
    Stale {
        /// Why it was served.
        why: StaleReason,
        /// How long ago it stopped being fresh.
        stale_for: Duration,
    },
    /// This request's own load.
    Led {
        /// Whether the answer was stored. It is not if there was an invalidation or something newer
        /// meanwhile, if it is too large or has no time to live, or if the store failed.
        stored: bool,
    },
    /// Answered by the load of another caller.
    Collapsed {
        /// Where that load ran.
        place: LoadLocation,
        /// How long this request waited for it.
        waited: Duration,
    },
    /// Loaded without the cache: not shared with other processes, and not stored. If the store failed, it
    /// may be [kept for a moment](crate::store::OutageStore) by this process.
    Bypass(BypassReason),
    /// Not answered: the request ended with an error.
    Failed,
}

/// Why a stale answer was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StaleReason {
    /// A load replaces it in the background (RFC 5861, section 3).
    Revalidating,
    /// The load that should replace it failed, just now or a moment ago (RFC 5861, section 4).
    LoadFailed,
    /// The load that replaces it takes longer than
    /// [`slow_load`](crate::service::ReadThroughLayerBuilder::slow_load).
    LoadSlow,
    /// The wait ran out, or the caller's deadline came or left no time for it.
    WaitRanOut,
    /// A bound on flights, waiters or loads was reached.
    NoRoom,
    /// The store does not answer, and the load failed or was late. The answer is a copy that this process
    /// has kept. Changes of it are not known since the connection to the store ended.
    StoreFailed,
}

/// Where the load of another caller ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LoadLocation {
    /// In this process.
    Local,
    /// In another process, or in another layer over the same store.
    Remote,
}

/// Why a request bypassed the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BypassReason {
    /// The key function gave no key.
    NoKey,
    /// Answers for this key are private or cannot be stored.
    Private,
    /// The store failed.
    StoreFailed,
    /// The wait for the load of another caller ran out, and the policy is to load then.
    WaitRanOut,
    /// The cache is [off](crate::service::ReadThroughLayerBuilder::enabled).
    Disabled,
}

impl fmt::Display for CacheStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bellwether")?;
        match self {
            Self::Hit { fresh_for: Some(left) } => write!(f, "; hit; ttl={}", left.as_secs())?,
            Self::Hit { fresh_for: None } => f.write_str("; hit")?,
            Self::Stale { why, stale_for } => {
                let result = if *why == StaleReason::Revalidating { "hit" } else { "fwd=stale" };
                write!(f, "; {result}; ttl=-{}", stale_for.as_secs())?;
            }
            Self::Led { stored: true } => f.write_str("; fwd=miss; stored")?,
            Self::Led { stored: false } | Self::Failed => f.write_str("; fwd=miss")?,
            Self::Collapsed { .. } => f.write_str("; fwd=miss; collapsed")?,
            Self::Bypass(_) => f.write_str("; fwd=bypass")?,
        }
        self.detail().map_or(Ok(()), |detail| write!(f, "; detail={detail}"))
    }
}

impl CacheStatus {
    /// What the parameter `detail` of the field says: the reason, in one word.
    pub fn detail(&self) -> Option<&'static str> {
        Some(match self {
            Self::Hit { .. } | Self::Led { .. } => return None,
            Self::Stale { why: StaleReason::Revalidating, .. } => "revalidating",
            Self::Stale { why: StaleReason::LoadFailed, .. } => "load-failed",
            Self::Stale { why: StaleReason::LoadSlow, .. } => "load-slow",
            Self::Stale { why: StaleReason::NoRoom, .. } => "no-room",
            Self::Stale { why: StaleReason::WaitRanOut, .. }
            | Self::Bypass(BypassReason::WaitRanOut) => "wait-ran-out",
            Self::Collapsed { place: LoadLocation::Local, .. } => "local",
            Self::Collapsed { place: LoadLocation::Remote, .. } => "remote",
            Self::Bypass(BypassReason::NoKey) => "no-key",
            Self::Bypass(BypassReason::Private) => "private",
            Self::Bypass(BypassReason::Disabled) => "disabled",
            Self::Stale { why: StaleReason::StoreFailed, .. }
            | Self::Bypass(BypassReason::StoreFailed) => "store-failed",
            Self::Failed => "failed",
        })
    }
}
