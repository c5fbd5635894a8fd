//! `StoredResponse`: what the store has when the origin is asked, for validation and as a fallback.

use std::sync::Arc;
use std::time::Duration;

use bellwether::Key;
use bellwether::store::Entry;
use http::{HeaderMap, HeaderName, Method, Request, Uri, header};

use super::cache_request::FetchRequest;
use super::codec::{CacheAnswer, CachedResponse, SharedAnswer};
use super::rules::{self, Demand};
use super::shared::{LayerState, Located};

/// What the store has for a key when the origin is asked.
pub(super) struct StoredResponse {
    entry: Option<Entry>,
    /// For how long that response replaces an error of the origin.
    if_error: Duration,
    cached: Option<Arc<CachedResponse>>,
}

impl StoredResponse {
    /// What the store has for a request. A stored response that may not be shared with this request
    /// is not validated for it, because pages of two users can have the same validator.
    pub(super) async fn of<B: Send + 'static>(
        shared: &LayerState,
        key: &Key,
        demand: &Demand,
    ) -> Self {
        let for_validation = Self::key_for_validation(key);
        let (entry, validated) =
            tokio::join!(shared.client.lookup(key), shared.response_at::<B>(&for_validation));
        let cached = entry.as_ref().and_then(|entry| {
            match &*shared.client.read::<CacheAnswer<B>>(entry)? {
                SharedAnswer::CachedResponse(cached) => Some(Arc::clone(cached)),
                _ => None,
            }
        });
        // An index states none itself.
        let if_error = match (&cached, &entry) {
            (Some(cached), _) => cached.response.note.windows().if_error(),
            (None, entry) => entry.as_ref().map_or(Duration::ZERO, |it| it.lifetimes().if_error()),
        };
        let validated = validated.map(|Located { cached, .. }| cached);
        let cached = cached.or(validated);
        Self {
            entry,
            if_error,
            cached: cached.filter(|cached| demand.may_share(cached.response.note.consent)),
        }
    }

    /// The key of a response that must be validated by the origin before any use.
    pub(super) fn key_for_validation(key: &Key) -> Key {
        Key::of("http-validate").with(key.digest().as_bytes())
    }

    pub(super) fn is_there(&self) -> bool {
        self.cached.is_some()
    }

    /// Whether a response is stored that is served as it is, or in place of an error of the origin.
    pub(super) fn can_replace_failure(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| {
            let serves_if_error = entry.stale_for().is_some_and(|stale| stale < self.if_error);
            let can_replace_failure = serves_if_error || entry.serves_while_revalidating();
            entry.as_marker().is_none() && (entry.is_fresh() || can_replace_failure)
        })
    }

    /// Whether a response is stored for other callers. It may be stale.
    pub(super) fn is_shared(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.as_marker().is_none())
    }

    /// The request for the origin, and whether it validates the stored response.
    ///
    /// A load for all waiters has no conditions of a single caller. A load for one caller keeps the
    /// conditions of that caller, unless it validates.
    pub(super) fn request_for<ReqB: Default>(
        &self,
        fetch_request: &FetchRequest<ReqB>,
    ) -> (Request<ReqB>, bool) {
        if let Some(cached) = &self.cached {
            let mut headers = fetch_request.without_conditions();
            let validates = rules::add_validators(&mut headers, &cached.response.headers);
            return (fetch_request.request(headers), validates);
        }
        let headers = match fetch_request.is_alone {
            true => fetch_request.cache_request.parts.headers.clone(),
            false => fetch_request.without_conditions(),
        };
        (fetch_request.request(headers), false)
    }

    /// The stored response and its updated header fields, if a 304 is about it. An origin may
    /// compare dates only, which misses a change within one second. Then a different entity tag in
    /// the 304 reveals the change.
    ///
    /// Without a date the origin was asked by the entity tag alone, and 304 is its answer to that. So
    /// the stored response is updated even if the 304 has another strong entity tag. RFC 9111, section
    /// 4.3.4, forbids this; `304-etag-update-response-ETag` of the public suite demands it, as a
    /// required test, and only an origin that contradicts itself answers so.
    pub(super) fn validated_by(
        &self,
        headers: &HeaderMap,
    ) -> Option<(Arc<CachedResponse>, HeaderMap)> {
        let cached = self.cached.as_ref()?;
        let stored = &cached.response.headers;
        if stored.contains_key(header::LAST_MODIFIED)
            && let Some(tag) = headers.get(header::ETAG)
            && stored.get(header::ETAG).is_some_and(|kept| weak(kept) != weak(tag))
        {
            return None;
        }
        Some((Arc::clone(cached), rules::freshen(stored, headers)))
    }
}

fn weak(tag: &http::HeaderValue) -> &[u8] {
    tag.as_bytes().strip_prefix(b"W/").unwrap_or(tag.as_bytes())
}

impl<ReqB> FetchRequest<ReqB> {
    /// The header fields of the request, without its conditions and its range.
    pub(super) fn without_conditions(&self) -> HeaderMap {
        let mut headers = self.cache_request.parts.headers.clone();
        for name in CONDITIONS {
            headers.remove(name);
        }
        headers
    }

    /// A GET like the caller's, with these header fields, without hop-by-hop fields.
    pub(super) fn request(&self, headers: HeaderMap) -> Request<ReqB>
    where
        ReqB: Default,
    {
        let parts = &self.cache_request.parts;
        let mut request = Request::new(ReqB::default());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = Uri::clone(&parts.uri);
        *request.version_mut() = parts.version;
        *request.headers_mut() = headers;
        rules::remove_hop_by_hop(request.headers_mut());
        *request.extensions_mut() = parts.extensions.clone();
        request
    }
}

const CONDITIONS: [HeaderName; 6] = [
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::IF_RANGE,
    header::RANGE,
];
