//! `StoredResponse`: what the store has for a key when the origin is asked.

use std::sync::Arc;
use std::time::Duration;

use bellwether::Key;
use bellwether::store::{Entry, Tags};
use http::{HeaderMap, Request, header};

use super::cache_request::{CacheRequest, FetchRequest};
use super::codec::{CacheAnswer, CachedResponse};
use super::layer_state::{LayerState, left_of};
use super::rules;
use super::vary_index::VaryIndex;

/// What the store has for a key when the origin is asked.
pub(super) struct StoredResponse {
    entry: Option<Entry>,
    /// For how long that response replaces an error of the origin.
    if_error: Duration,
    /// The response that the origin may validate for the request.
    pub(super) cached: Option<Arc<CachedResponse>>,
    /// How much longer the `Vary` index is stored by which the key was made.
    pub(super) index_left: Option<Duration>,
}

impl StoredResponse {
    /// What the store has for a request. A stored response that may not be shared with this request
    /// is not validated for it, because pages of two users can have the same validator.
    pub(super) async fn of<B: Send + 'static>(
        shared: &LayerState,
        fetch_request: &FetchRequest,
    ) -> Self {
        let FetchRequest { key, cache_request, vary_index, .. } = fetch_request;
        let CacheRequest { demand, primary, .. } = &**cache_request;
        let for_validation = Self::key_for_validation(key);
        let (tags, none) =
            (VaryIndex::tags_of_request(vary_index.as_deref(), primary), Tags::none());
        let index = async {
            vary_index.as_ref()?;
            shared.client.lookup(primary, &none).await
        };
        let (entry, validated, index) = tokio::join!(
            shared.client.lookup(key, &tags),
            shared.found::<B>(&for_validation, &none),
            index
        );
        let found = entry.as_ref().and_then(|it| shared.client.read::<CacheAnswer<B>>(it));
        let cached = found.as_ref().and_then(|it| it.response());
        // An index states none itself.
        let if_error = match (&cached, &entry) {
            (Some(cached), _) => cached.response.note.if_error,
            (None, entry) => entry.as_ref().map_or(Duration::ZERO, |it| it.lifetimes().if_error()),
        };
        let cached = cached.or_else(|| validated.as_ref()?.1.response());
        let cached = cached.filter(|cached| demand.may_share(cached.response.note.consent));
        Self { cached: cached.cloned(), entry, if_error, index_left: index.as_ref().map(left_of) }
    }

    /// The key of a response that must be validated by the origin before any use.
    pub(super) fn key_for_validation(key: &Key) -> Key {
        Key::of("http-validate").with(key.digest().as_bytes())
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
    pub(super) fn request_for(&self, fetch_request: &FetchRequest) -> (Request<()>, bool) {
        let given = &fetch_request.cache_request.parts.headers;
        let mut headers = match self.cached.is_none() && fetch_request.is_alone {
            true => given.clone(),
            false => rules::without_conditions(given),
        };
        let stored = self.cached.as_ref().map(|cached| &cached.response.headers);
        let validates = stored.is_some_and(|stored| rules::add_validators(&mut headers, stored));
        (fetch_request.request(headers), validates)
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
        let weak = |headers: &HeaderMap| {
            headers.get(header::ETAG).map(|tag| rules::without_weakness(tag.as_bytes()).to_vec())
        };
        let is_another = weak(stored).zip(weak(headers)).is_some_and(|(kept, tag)| kept != tag);
        if is_another && stored.contains_key(header::LAST_MODIFIED) {
            return None;
        }
        Some((Arc::clone(cached), rules::freshen(stored, headers)))
    }
}
