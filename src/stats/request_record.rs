//! A request in the statistics: it counts once, whatever becomes of it.

use std::sync::{Arc, Mutex, OnceLock};

use super::cache_stats::RequestEvent;
use super::recorder::Statistics;
use crate::locked::locked;
use crate::status::{BypassReason, CacheStatus, LoadLocation, StaleReason};

/// A request that an adapter answers, perhaps after several lookups. It counts once: by how it has
/// [ended](Self::end), or, if it is dropped before, as left by its caller. Made by
/// [`AdapterCache::begin`](crate::adapter::AdapterCache::begin).
#[derive(Debug)]
pub struct RequestRecord {
    statistics: Arc<Statistics>,
    /// Made by the first lookup, since a bypass has none.
    noted: OnceLock<NotedEvent>,
    is_counted: bool,
}

impl RequestRecord {
    pub(crate) fn begin(statistics: Arc<Statistics>) -> Self {
        Self { statistics, noted: OnceLock::new(), is_counted: false }
    }

    /// What the lookups of the request note their ends in, instead of counting them.
    pub(crate) fn noted(&self) -> &NotedEvent {
        self.noted.get_or_init(NotedEvent::default)
    }

    /// The request was answered with this status.
    pub fn end(self, status: &CacheStatus) {
        let event = RequestEvent::of(status);
        // Its last lookup may know more.
        let noted = self.noted.get().and_then(|noted| *locked(noted));
        let noted = noted.filter(|noted| noted.refines(event));
        self.count(noted.unwrap_or(event));
    }

    pub(crate) fn count(mut self, event: RequestEvent) {
        self.is_counted = true;
        self.statistics.request(event);
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        if !self.is_counted {
            self.statistics.request(RequestEvent::Left);
        }
    }
}

/// How the last lookup of a request has ended. Held to set or to read it, never across an `.await`.
pub(crate) type NotedEvent = Arc<Mutex<Option<RequestEvent>>>;

impl RequestEvent {
    /// How a request with this status counts: a hit as one of the store, a failure as one of the
    /// loader.
    pub(crate) fn of(status: &CacheStatus) -> Self {
        match status {
            CacheStatus::Hit { .. } => Self::HitStore,
            CacheStatus::Stale { why, .. } => match why {
                StaleReason::Revalidating => Self::StaleRevalidating,
                StaleReason::LoadFailed => Self::StaleLoadFailed,
                StaleReason::LoadSlow => Self::StaleLoadSlow,
                StaleReason::WaitRanOut => Self::StaleWaitRanOut,
                StaleReason::NoRoom => Self::StaleNoRoom,
                StaleReason::StoreFailed => Self::StaleStoreFailed,
            },
            CacheStatus::Led { stored: true } => Self::LedStored,
            CacheStatus::Led { stored: false } => Self::LedUnstored,
            CacheStatus::Collapsed { place: LoadLocation::Local, .. } => Self::CollapsedLocal,
            CacheStatus::Collapsed { place: LoadLocation::Remote, .. } => Self::CollapsedRemote,
            CacheStatus::Bypass(why) => match why {
                BypassReason::NoKey => Self::BypassedNoKey,
                BypassReason::Private => Self::BypassedPrivate,
                BypassReason::StoreFailed => Self::BypassedStoreFailed,
                BypassReason::WaitRanOut => Self::BypassedWaitRanOut,
                BypassReason::Disabled => Self::BypassedDisabled,
            },
            CacheStatus::Failed => Self::FailedLoader,
        }
    }

    /// Whether a request that counts as `other` counts as this one more exactly: as a hit in this
    /// process or in the store, or as a failure for this reason.
    fn refines(self, other: Self) -> bool {
        match other {
            Self::HitStore => matches!(self, Self::HitLocal | Self::HitStore),
            Self::FailedLoader => self.is_failure(),
            _ => false,
        }
    }

    fn is_failure(self) -> bool {
        (Self::FailedLoader as usize..=Self::FailedMisuse as usize).contains(&(self as usize))
    }
}
