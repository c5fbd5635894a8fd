//! `Handling`: whether a request is answered from the cache, or bypasses it.

use http::request::Parts;
use http::{HeaderMap, Method, header};
use http_body::Body;

use super::rules::{self, Demand};

/// How a request is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handling {
    /// It is answered from the cache. What is not stored is loaded, and waiters share that load.
    Cached,
    /// It is answered by a stored response, or forwarded to the origin as it is.
    StoredOnly,
    /// It is forwarded to the origin. The text is the `fwd` parameter of `Cache-Status`.
    Bypass(&'static str),
    /// It is forwarded to the origin. If it succeeds, its target is invalidated.
    Unsafe,
}

impl Handling {
    /// How a request is handled, if its target has a key.
    pub(super) fn of<B: Body>(parts: &Parts, body: &B, demand: &Demand) -> Self {
        let headers = &parts.headers;
        match parts.method {
            Method::GET | Method::HEAD => {}
            Method::CONNECT => return Self::Bypass("method"),
            _ if rules::is_safe(&parts.method) => return Self::Bypass("method"),
            _ => return Self::Unsafe,
        }
        if has_content(headers, body)
            || asks_for_another_protocol(headers)
            || rules::names_others(headers)
        {
            return Self::Bypass("bypass");
        }
        let has_precondition = headers.contains_key(header::IF_MATCH)
            || headers.contains_key(header::IF_UNMODIFIED_SINCE);
        if demand.no_store || has_precondition {
            return Self::Bypass("request");
        }
        let is_whole = parts.method == Method::GET && !headers.contains_key(header::RANGE);
        if is_whole && !demand.only_if_cached { Self::Cached } else { Self::StoredOnly }
    }
}

fn has_content<B: Body>(headers: &HeaderMap, body: &B) -> bool {
    let length = headers.get(header::CONTENT_LENGTH);
    headers.contains_key(header::TRANSFER_ENCODING)
        || length.is_some_and(|length| length != "0")
        || (length.is_none() && !body.is_end_stream() && body.size_hint().exact() != Some(0))
}

fn asks_for_another_protocol(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
}
