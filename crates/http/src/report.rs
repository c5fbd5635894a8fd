//! `Report`: how an answer came about, as the field `Cache-Status` (RFC 9211).

use std::fmt::{self, Write as _};
use std::time::Duration;

use bellwether::{BypassReason, CacheStatus, StaleReason};
use bellwether_body::CacheBody;
use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::codec::OriginInfo;
use super::rules::PrivateReason;

/// How an answer came about. The key is not part of it, since it may hold secrets.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// The same, for the program: an extension of the response.
    cache_status: CacheStatus,
    /// Why the origin was asked. `None` if it is served from the store without that.
    forwarded: Option<&'static str>,
    /// The status of the origin's response.
    status: Option<StatusCode>,
    /// How much longer it is fresh, in seconds.
    ttl: Option<i64>,
    detail: Option<String>,
}

/// Why a request is forwarded: the parameters `fwd` and `detail` of `Cache-Status`.
pub(super) type ForwardReason = (&'static str, Option<&'static str>);

/// The cache is off.
pub(super) const DISABLED: ForwardReason = ("bypass", Some("disabled"));

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
        Self { cache_status, forwarded: None, status: None, ttl: None, detail: None }
    }

    /// The response to a request that was forwarded to the origin.
    pub(super) fn forwarded<B>(
        why: ForwardReason,
        response: Response<B>,
    ) -> Response<CacheBody<B>> {
        let reason = if why == DISABLED { BypassReason::Disabled } else { BypassReason::NoKey };
        let bypass = Self::new(CacheStatus::Bypass(reason));
        let (forwarded, detail) = (Some(why.0), why.1.map(str::to_owned));
        let report = Self { forwarded, detail, status: Some(response.status()), ..bypass };
        let mut response = response.map(CacheBody::passing);
        report.add_to(&mut response);
        response
    }

    /// For a response that was passed through and not stored.
    pub(super) fn not_kept(
        lookup: LookupKind,
        status: &CacheStatus,
        origin: OriginInfo,
        why: PrivateReason,
    ) -> Self {
        Self { detail: Some(why.to_string()), ..Self::of(lookup, status, origin) }
    }

    /// For a response of the cache itself.
    pub(super) fn failed(why: &str) -> Self {
        let failed = Self::new(CacheStatus::Failed);
        Self { forwarded: Some("miss"), detail: Some(why.to_owned()), ..failed }
    }

    /// For an answer of the cache.
    pub(super) fn of(lookup: LookupKind, status: &CacheStatus, origin: OriginInfo) -> Self {
        let forwarded = match lookup {
            LookupKind::Refetch => "request",
            _ if origin.was_stale => "stale",
            LookupKind::Target => "uri-miss",
            LookupKind::Variant => "vary-miss",
        };
        let forwarded = match status {
            CacheStatus::Hit { .. } | CacheStatus::Stale { why: StaleReason::Revalidating, .. } => {
                None
            }
            CacheStatus::Stale { .. } if forwarded != "request" => Some("stale"),
            _ => Some(forwarded),
        };
        let detail = status.detail().filter(|_| *status != CacheStatus::Failed);
        let status_of_origin = origin.status.filter(|_| forwarded.is_some());
        let detail = detail.map(str::to_owned);
        Self { forwarded, status: status_of_origin, detail, ..Self::new(status.clone()) }
    }

    /// Whether the origin gave the response to this very request.
    pub(super) fn is_of_this_request(&self) -> bool {
        let is_own = matches!(self.cache_status, CacheStatus::Led { .. } | CacheStatus::Bypass(_));
        is_own && self.status.is_some()
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
        match self.forwarded {
            None => f.write_str("; hit")?,
            Some(why) => write!(f, "; fwd={why}")?,
        }
        if let Some(status) = self.status {
            write!(f, "; fwd-status={}", status.as_u16())?;
        }
        f.write_str(match self.cache_status {
            CacheStatus::Led { stored: true } => "; stored",
            CacheStatus::Collapsed { .. } => "; collapsed",
            _ => "",
        })?;
        if let Some(ttl) = self.ttl {
            write!(f, "; ttl={ttl}")?;
        }
        match &self.detail {
            Some(detail) => write!(f, "; detail={detail}"),
            None => Ok(()),
        }
    }
}

/// A duration in seconds, as the parameter `ttl` has it.
pub(super) fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
