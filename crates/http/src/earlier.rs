//! `StoredResponse`: what is there already when the origin is asked, and what it is good for.

use std::sync::Arc;

use bellwether::Key;
use bellwether::store::Entry;
use http::{HeaderMap, HeaderName, Method, Request, Uri, header};

use super::asked::FetchRequest;
use super::kept::{CacheAnswer, CachedResponse, KeptAnswer};
use super::rules::{self, Demand};
use super::shared::{LayerState, Located};

/// What is there already when the origin is asked.
#[derive(Debug)]
pub(super) struct StoredResponse {
    entry: Option<Entry>,
    whole: Option<Arc<CachedResponse>>,
}

impl StoredResponse {
    /// What is there for a request. A response that does not say that it may be shared with it is
    /// not validated for it: that two users are told of one tag does not make their pages one.
    pub(super) async fn of<B: Send + 'static>(
        shared: &LayerState,
        key: &Key,
        demand: &Demand,
    ) -> Self {
        let for_validation = Self::key_for_validation(key);
        let (entry, validated) =
            tokio::join!(shared.client.lookup(key), shared.whole_at::<B>(&for_validation));
        let whole = entry.as_ref().and_then(|entry| {
            match &*shared.client.read::<CacheAnswer<B>>(entry)? {
                KeptAnswer::CachedResponse(whole) => Some(Arc::clone(whole)),
                _ => None,
            }
        });
        let validated = validated.map(|Located { whole, .. }| whole);
        let whole = whole.or(validated);
        Self { entry, whole: whole.filter(|whole| demand.may_share(whole.response.note.consent)) }
    }

    /// Where a response is kept that no caller may be given without asking the origin.
    pub(super) fn key_for_validation(key: &Key) -> Key {
        Key::of("http-validate").with(key.digest().as_bytes())
    }

    pub(super) fn is_there(&self) -> bool {
        self.whole.is_some()
    }

    /// Whether there is an answer that is given to others, by itself or in place of a failure.
    pub(super) fn will_do(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| {
            let will_do = entry.serves_if_error() || entry.serves_while_revalidating();
            entry.as_marker().is_none() && (entry.is_fresh() || will_do)
        })
    }

    /// Whether an answer was kept for others, though it may be stale.
    pub(super) fn is_shared(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.as_marker().is_none())
    }

    /// The request for the origin, and whether it asks if what is kept is still good.
    ///
    /// What all callers are to have is asked for without the conditions of one. Those of a caller
    /// that waits for no other go through.
    pub(super) fn request_for<ReqB: Default>(
        &self,
        fetch_request: &FetchRequest<ReqB>,
    ) -> (Request<ReqB>, bool) {
        if let Some(whole) = &self.whole {
            let mut headers = fetch_request.without_conditions();
            let validates = rules::add_validators(&mut headers, &whole.response.headers);
            return (fetch_request.request(headers), validates);
        }
        let headers = match fetch_request.is_alone {
            true => fetch_request.asked.parts.headers.clone(),
            false => fetch_request.without_conditions(),
        };
        (fetch_request.request(headers), false)
    }

    /// What is kept and its headers as they are now, if a 304 is about it. An origin that was asked
    /// by a date too may have gone by that, which does not see a change within a second; then its
    /// tag tells.
    pub(super) fn validated_by(
        &self,
        headers: &HeaderMap,
    ) -> Option<(Arc<CachedResponse>, HeaderMap)> {
        let whole = self.whole.as_ref()?;
        let stored = &whole.response.headers;
        if stored.contains_key(header::LAST_MODIFIED)
            && let Some(tag) = headers.get(header::ETAG)
            && stored.get(header::ETAG).is_some_and(|kept| weak(kept) != weak(tag))
        {
            return None;
        }
        Some((Arc::clone(whole), rules::freshen(stored, headers)))
    }
}

fn weak(tag: &http::HeaderValue) -> &[u8] {
    tag.as_bytes().strip_prefix(b"W/").unwrap_or(tag.as_bytes())
}

impl<ReqB> FetchRequest<ReqB> {
    /// The fields of the request, but not its conditions.
    pub(super) fn without_conditions(&self) -> HeaderMap {
        let mut headers = self.asked.parts.headers.clone();
        for name in CONDITIONS {
            headers.remove(name);
        }
        headers
    }

    /// A request like the caller's, with these fields.
    pub(super) fn request(&self, headers: HeaderMap) -> Request<ReqB>
    where
        ReqB: Default,
    {
        let parts = &self.asked.parts;
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
