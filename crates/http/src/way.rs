//! Which way a request goes.

use http::request::Parts;
use http::{HeaderMap, Method, header};
use http_body::Body;

use super::rules::{self, Demand};

/// Which way a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It asks for what is kept, and what is not is loaded.
    Ask,
    /// It is answered by what is kept, or goes to the origin as it is.
    Look,
    /// It goes to the origin, and why in the words of `Cache-Status`.
    Around(&'static str),
    /// The same, and if it goes well, what is kept for its target is not good any more.
    Change,
}

impl Way {
    /// Which way a request goes, if what it is for has a key.
    pub(super) fn of<B: Body>(parts: &Parts, body: &B, demand: &Demand) -> Self {
        let headers = &parts.headers;
        match parts.method {
            Method::GET | Method::HEAD => {}
            Method::CONNECT => return Self::Around("method"),
            _ if rules::is_safe(&parts.method) => return Self::Around("method"),
            _ => return Self::Change,
        }
        if has_content(headers, body)
            || asks_for_another_protocol(headers)
            || rules::names_others(headers)
        {
            return Self::Around("bypass");
        }
        let has_precondition = headers.contains_key(header::IF_MATCH)
            || headers.contains_key(header::IF_UNMODIFIED_SINCE);
        if demand.no_store || has_precondition {
            return Self::Around("request");
        }
        let is_whole = parts.method == Method::GET && !headers.contains_key(header::RANGE);
        if is_whole && !demand.only_if_cached { Self::Ask } else { Self::Look }
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
