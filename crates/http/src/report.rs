//! `Report`: how an answer came about, as the field `Cache-Status` (RFC 9211).

use std::fmt::{self, Write as _};
use std::time::Duration;

use bellwether::{BypassReason, CacheStatus, StaleReason};
use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::codec::OriginInfo;

/// How an answer came about. The key is not part of it, since it may hold secrets.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// The same, for the program: an extension of the response.
    cache_status: CacheStatus,
    /// Served from the store, without a request to the origin.
    is_hit: bool,
    /// Why the origin was asked.
    forwarded: Option<&'static str>,
    /// The status of the origin's response.
    status: Option<StatusCode>,
    is_stored: bool,
    is_collapsed: bool,
    /// How much longer it is fresh, in seconds.
    ttl: Option<i64>,
    detail: Option<String>,
}

/// Which lookup came before the request to the origin.
#[derive(Clone, Copy, Debug)]
pub(super) enum LookupKind {
    Target,
    Variant,
    /// The cached response does not satisfy the request, so the origin is asked again.
    Refetch,
}

impl Report {
    fn new(cache_status: CacheStatus) -> Self {
        Self {
            cache_status,
            is_hit: false,
            forwarded: None,
            status: None,
            is_stored: false,
            is_collapsed: false,
            ttl: None,
            detail: None,
        }
    }

    /// For a request that was forwarded to the origin.
    pub(super) fn forwarded(why: &'static str, status: StatusCode) -> Self {
        let bypass = Self::new(CacheStatus::Bypass(BypassReason::NoKey));
        Self { forwarded: Some(why), status: Some(status), ..bypass }
    }

    /// For a response that was passed through and not stored.
    pub(super) fn not_kept(
        lookup: LookupKind,
        status: &CacheStatus,
        origin: OriginInfo,
        why: String,
    ) -> Self {
        Self { detail: Some(why), is_stored: false, ..Self::of(lookup, status, origin) }
    }

    /// For a response of the cache itself.
    pub(super) fn failed(why: &str) -> Self {
        let failed = Self::new(CacheStatus::Failed);
        Self { forwarded: Some("miss"), detail: Some(why.to_owned()), ..failed }
    }

    /// For a stored response that was found outside of a load. `ttl` is in seconds, and negative if
    /// it is stale.
    pub(super) fn hit(ttl: i64) -> Self {
        let time = Duration::from_secs(ttl.unsigned_abs());
        let cache_status = match ttl < 0 {
            true => CacheStatus::Stale { why: StaleReason::Revalidating, stale_for: time },
            false => CacheStatus::Hit { fresh_for: Some(time) },
        };
        Self { is_hit: true, ttl: Some(ttl), ..Self::new(cache_status) }
    }

    /// For an answer of the cache.
    pub(super) fn of(lookup: LookupKind, status: &CacheStatus, origin: OriginInfo) -> Self {
        let forwarded = match lookup {
            LookupKind::Refetch => "request",
            _ if origin.was_stale => "stale",
            LookupKind::Target => "uri-miss",
            LookupKind::Variant => "vary-miss",
        };
        let stored = Self::new(status.clone());
        let cache_request =
            Self { forwarded: Some(forwarded), status: origin.status, ..stored.clone() };
        match status {
            CacheStatus::Hit { .. } => Self { is_hit: true, ..stored },
            CacheStatus::Stale { why: StaleReason::Revalidating, .. } => {
                Self { is_hit: true, detail: Some("revalidating".to_owned()), ..stored }
            }
            CacheStatus::Stale { why, .. } => {
                let detail = Some(why.to_string());
                let why = if matches!(lookup, LookupKind::Refetch) { "request" } else { "stale" };
                Self { forwarded: Some(why), status: origin.status, detail, ..stored }
            }
            CacheStatus::Led { stored } => Self { is_stored: *stored, ..cache_request },
            CacheStatus::Collapsed { place, .. } => {
                Self { is_collapsed: true, detail: Some(place.to_string()), ..cache_request }
            }
            CacheStatus::Bypass(why) => Self { detail: Some(why.to_string()), ..cache_request },
            _ => Self::failed("failed"),
        }
    }

    /// Whether the origin gave the response to this very request.
    pub(super) fn is_of_this_request(&self) -> bool {
        let is_stale = matches!(self.cache_status, CacheStatus::Stale { .. });
        self.status.is_some() && !self.is_collapsed && !is_stale
    }

    pub(super) fn detail(self, detail: &str) -> Self {
        Self { detail: Some(detail.to_owned()), ..self }
    }

    pub(super) fn ttl(self, seconds: i64) -> Self {
        Self { ttl: Some(seconds), ..self }
    }

    /// Appends it to the entries of caches nearer to the origin, and replaces the extension of
    /// those.
    pub(super) fn add_to<B>(&self, response: &mut Response<B>) {
        response.extensions_mut().insert(self.cache_status.clone());
        let mut member = String::with_capacity(64);
        if write!(member, "{self}").is_ok()
            && let Ok(value) = HeaderValue::try_from(member)
        {
            response.headers_mut().append(CACHE_STATUS, value);
        }
    }
}

/// One member of the list.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bellwether")?;
        if self.is_hit {
            f.write_str("; hit")?;
        } else if let Some(why) = self.forwarded {
            write!(f, "; fwd={why}")?;
        }
        if let Some(status) = self.status {
            write!(f, "; fwd-status={}", status.as_u16())?;
        }
        if self.is_stored {
            f.write_str("; stored")?;
        }
        if self.is_collapsed {
            f.write_str("; collapsed")?;
        }
        if let Some(ttl) = self.ttl {
            write!(f, "; ttl={ttl}")?;
        }
        match &self.detail {
            Some(detail) => write!(f, "; detail={detail}"),
            None => Ok(()),
        }
    }
}

/// The extension of a response on its way to the statistics: this process had it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalHit;

/// A duration in seconds, as the parameter `ttl` has it.
pub(super) fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
