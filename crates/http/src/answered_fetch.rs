//! `AnsweredFetch`: whether a response of the origin is stored, shared or passed through.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::codec::Cacheability;
use bellwether::{BoxError, Key, Lifetimes};
use bellwether_body::{
    BodyObserver, BufferedResponse, CacheBody, CollectedBody, ObservedBody, UnfinishedReason,
    collect,
};
use http::{HeaderMap, HeaderName, Response, StatusCode, header, response};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::cache_request::{FetchRequest, OriginBody};
use super::codec::{
    CacheAnswer, CachedResponse, CompleteResponse, OriginInfo, Passthrough, announced,
    check_length, shared,
};
use super::layer_state::LayerState;
use super::rules::{self, PrivateReason, Storing, Terms, Times};
use super::stored_response::StoredResponse;
use super::vary_index::VaryIndex;

/// One load after the origin has answered.
pub(super) struct AnsweredFetch<'a> {
    pub(super) shared: &'a Arc<LayerState>,
    pub(super) fetch_request: &'a FetchRequest,
    pub(super) stored_response: &'a StoredResponse,
}

/// The origin has answered a load with an error that only its request may have, and a stored response is there
/// for it.
#[derive(Debug)]
pub(super) struct AnsweredWithError(StatusCode);

impl fmt::Display for AnsweredWithError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the origin answered {}", self.0)
    }
}

impl std::error::Error for AnsweredWithError {}

impl AnsweredFetch<'_> {
    /// The origin has answered 304: the stored response is still valid.
    pub(super) async fn validated<B: Send + 'static>(
        &self,
        stored_response: &CachedResponse,
        headers: HeaderMap,
        times: Times,
    ) -> Result<CacheAnswer<B>, BoxError> {
        let BufferedResponse { status, body, trailers, .. } = &stored_response.response;
        let decision = self.classify(*status, &headers, times);
        let fresh = CompleteResponse {
            status: *status,
            headers,
            body: body.clone(),
            trailers: trailers.clone(),
            origin: self.origin_info(StatusCode::NOT_MODIFIED),
            times,
        };
        self.conclude(fresh, decision).await
    }

    pub(super) async fn received<B: OriginBody>(
        &self,
        response: Response<B>,
        times: Times,
    ) -> Result<CacheAnswer<B>, BoxError> {
        let (parts, body) = response.into_parts();
        let origin = self.origin_info(parts.status);
        let decision = self.classify(parts.status, &parts.headers, times);
        let until = match decision {
            Storing::Private(why) => {
                let response = Response::from_parts(parts, CacheBody::passing(body));
                return self.pass(response, why, origin);
            }
            // The response is for one caller, so it does not wait for more than has arrived.
            Storing::Validate(..) => Instant::now(),
            _ if self.fetch_request.is_alone => Instant::now(),
            _ => self.shared.deadline(&self.fetch_request.cache_request),
        };
        let most = self.shared.client.max_entry_bytes();
        if announced(&parts.headers).flatten().is_some_and(|length| length > most) {
            let response = Response::from_parts(parts, CacheBody::passing(body));
            let why = UnfinishedReason::TooLarge;
            return self.unfinished(response, decision, why, (origin, times));
        }
        let collected = collect(body, most, until, &self.shared.parts.collecting).await;
        let (body, trailers) = match collected.map_err(Into::into)? {
            CollectedBody::Whole { data, trailers } => (data, trailers),
            CollectedBody::Unfinished { begun, rest, why } => {
                let response = Response::from_parts(parts, CacheBody::resumed(begun, rest));
                return self.unfinished(response, decision, why, (origin, times));
            }
        };
        check_length(&parts.headers, body.len())?;
        let why = trailers.as_ref().and_then(rules::forbidden_by_trailers);
        let decision = why.map_or(decision, Storing::Private);
        let response::Parts { status, headers, .. } = parts;
        self.conclude(CompleteResponse { status, headers, body, trailers, origin, times }, decision)
            .await
    }

    /// Whether a response is stored, shared or private. Only its size and its speed can change that
    /// later.
    fn classify(&self, status: StatusCode, headers: &HeaderMap, times: Times) -> Storing {
        let request = &self.fetch_request.cache_request.parts.headers;
        let decision = match self.shared.classify(request, status, headers, times) {
            // A stale response may be served in its place (RFC 5861), whatever lifetime it states.
            Storing::Keep(_) | Storing::Share(_)
                if status.is_server_error() && self.stored_response.can_replace_failure() =>
            {
                Storing::Share(Cacheability::Failure)
            }
            decision => decision,
        };
        match decision {
            Storing::Share(_) if !self.is_for_all_waiters(headers) => {
                Storing::Private(PrivateReason::Vary)
            }
            decision => decision,
        }
    }

    /// Passes a response through whose body is too large, or is not complete in time, or has no room.
    fn unfinished<B: Send + 'static>(
        &self,
        response: Response<CacheBody<B>>,
        decision: Storing,
        unfinished: UnfinishedReason,
        (origin, times): (OriginInfo, Times),
    ) -> Result<CacheAnswer<B>, BoxError> {
        let is_slow = unfinished == UnfinishedReason::TooSlow;
        match decision {
            Storing::Validate(terms, why) if is_slow => {
                let response = match self.key_to_validate(response.headers(), &terms) {
                    Some(key) => self.copied(response, key, terms, (origin, times)),
                    None => response,
                };
                self.pass(response, why, origin)
            }
            _ if is_slow && self.fetch_request.is_alone => {
                let observer = self.shared.completion_observer(&self.fetch_request.cache_request);
                let response = response.map(|body| body.observed_by(observer));
                Ok(passing(response, PrivateReason::NotShared, origin, true))
            }
            _ => self.pass(response, unfinished.into(), origin),
        }
    }

    /// Passes a response through, and stores a copy once it is complete.
    fn copied<B: Send + 'static>(
        &self,
        response: Response<CacheBody<B>>,
        key: Key,
        terms: Terms,
        (origin, times): (OriginInfo, Times),
    ) -> Response<CacheBody<B>> {
        let shared = Arc::clone(self.shared);
        let runtime = Handle::current();
        let status = response.status();
        let headers = response.headers().clone();
        let tags = shared.tags_of(&headers, &self.fetch_request.cache_request.parts);
        let keep = move |observed| {
            let ObservedBody::Complete { data: body, trailers } = observed else { return };
            let is_private = trailers.as_ref().and_then(rules::forbidden_by_trailers).is_some();
            if check_length(&headers, body.len()).is_ok() && !is_private {
                let answered = CompleteResponse { status, headers, body, trailers, origin, times };
                let stored = Cacheability::KeepFor(terms.lifetimes);
                let cached = answered.to_cached(shared.unstored(), stored, &terms, tags);
                runtime.spawn(async move { shared.keep::<B>(key, &cached).await });
            }
        };
        let most = self.shared.client.max_entry_bytes();
        let deadline = Instant::now() + self.shared.client.load_timeout();
        let observer =
            BodyObserver::new(most, deadline, keep).copying(&self.shared.parts.collecting);
        response.map(|body| body.observed_by(observer))
    }

    /// The key under which a response that is never fresh is stored for validation, if it may be.
    /// It needs an entity tag if the request has credentials: a date cannot distinguish the
    /// responses of two users. A response with `Vary` is not stored, as the key selects no variant.
    fn key_to_validate(&self, headers: &HeaderMap, terms: &Terms) -> Option<Key> {
        let is_tagged = headers.contains_key(header::ETAG);
        let has_credentials = self.fetch_request.cache_request.has_credentials;
        let is_told = terms.vary.is_empty() && (is_tagged || !has_credentials);
        is_told.then(|| StoredResponse::key_for_validation(&self.fetch_request.key))
    }

    /// Whether all waiters of this load agree in the request header fields that `Vary` names.
    fn is_for_all_waiters(&self, headers: &HeaderMap) -> bool {
        match (rules::vary(headers), &self.fetch_request.vary_index) {
            (Some(names), Some(vary_index)) => vary_index.covers(&names),
            (Some(names), None) => names.is_empty(),
            (None, _) => false,
        }
    }

    fn origin_info(&self, status: StatusCode) -> OriginInfo {
        OriginInfo { status: Some(status), was_stale: self.stored_response.cached.is_some() }
    }

    /// The answer of this load, given a complete response.
    async fn conclude<B: Send + 'static>(
        &self,
        answered: CompleteResponse,
        decision: Storing,
    ) -> Result<CacheAnswer<B>, BoxError> {
        if matches!(decision, Storing::Keep(_) | Storing::Share(Cacheability::KeepFor(_))) {
            self.shared.note_shared(&self.fetch_request.cache_request);
        }
        Ok(match decision {
            Storing::Keep(_) if self.fetch_request.is_alone => {
                self.shared_answer(&answered, shared())
            }
            Storing::Keep(terms) => self.keep(answered, terms).await,
            Storing::Validate(terms, why) => {
                if let Some(key) = self.key_to_validate(&answered.headers, &terms) {
                    let cached = self.stored(&answered, &terms);
                    self.shared.keep::<B>(key, &cached).await;
                }
                return self.pass_complete(answered, why);
            }
            Storing::Share(cacheability) => self.shared_answer(&answered, cacheability),
            Storing::Private(why) => return self.pass_complete(answered, why),
        })
    }

    /// A complete response, to be stored with its tags.
    fn stored(&self, answered: &CompleteResponse, terms: &Terms) -> Arc<CachedResponse> {
        let request = &self.fetch_request.cache_request;
        let mut tags = self.shared.tags_of(&answered.headers, &request.parts);
        if self.fetch_request.vary_index.is_some() || !terms.vary.is_empty() {
            tags.push(VaryIndex::tag(&request.primary));
        }
        let cacheability = Cacheability::KeepFor(terms.lifetimes);
        answered.to_cached(self.shared.unstored(), cacheability, terms, tags)
    }

    /// A response that the waiters share, and that is not stored.
    fn shared_answer<B>(
        &self,
        answered: &CompleteResponse,
        cacheability: Cacheability,
    ) -> CacheAnswer<B> {
        let terms = &Terms::none();
        let cached = answered.to_cached(self.shared.unstored(), cacheability, terms, Vec::new());
        CacheAnswer::CachedResponse(cached)
    }

    fn pass_complete<B>(
        &self,
        answered: CompleteResponse,
        why: PrivateReason,
    ) -> Result<CacheAnswer<B>, BoxError> {
        let CompleteResponse { status, headers, body, trailers, origin, .. } = answered;
        let mut response = Response::new(CacheBody::stored(body, trailers));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        self.pass(response, why, origin)
    }

    /// A private response, for its own caller only. If there is a stale fallback, an error response
    /// is a failure of the load instead, and no caller gets a byte of it.
    fn pass<B>(
        &self,
        response: Response<CacheBody<B>>,
        why: PrivateReason,
        origin: OriginInfo,
    ) -> Result<CacheAnswer<B>, BoxError> {
        let is_error = response.status().is_server_error();
        if is_error
            && self.stored_response.can_replace_failure()
            && !self.fetch_request.forces_refresh
            && !self.fetch_request.is_alone
        {
            return Err(Box::new(AnsweredWithError(response.status())));
        }
        let cache_request = &self.fetch_request.cache_request;
        // Such a response does not make the target private: it says nothing about the next one, or
        // a shared response is stored already.
        let is_own = is_error
            || self.stored_response.is_shared()
            || cache_request.has_credentials
            || why == PrivateReason::OverBudget;
        self.shared.note_private(cache_request, response.status(), &why);
        Ok(passing(response, why, origin, is_own))
    }

    /// Stores a response: under its target, or as a variant if it varies.
    async fn keep<B: Send + 'static>(
        &self,
        answered: CompleteResponse,
        terms: Terms,
    ) -> CacheAnswer<B> {
        let cached = self.stored(&answered, &terms);
        let (primary, life) = (&self.fetch_request.cache_request.primary, terms.lifetimes.life());
        match &self.fetch_request.vary_index {
            None if terms.vary.is_empty() => CacheAnswer::CachedResponse(cached),
            None => CacheAnswer::VaryIndex(Arc::new(
                self.first_variant::<B>(&terms.vary, &cached, life).await,
            )),
            Some(vary_index) if vary_index.covers(&terms.vary) => {
                self.note_variant::<B>(vary_index, &self.fetch_request.key, life).await;
                if self.stored_response.index_left.is_some_and(|left| left < life) {
                    // The index would end before the variant.
                    let prolonged = vary_index.stored_for(life);
                    self.shared.replace_vary_index::<B>(primary, vary_index, prolonged).await;
                }
                CacheAnswer::CachedResponse(cached)
            }
            // `Vary` names fields that the index does not have: it is replaced by one that has both.
            Some(vary_index) => {
                let all = [&vary_index.names()[..], &terms.vary].concat();
                let new = self.first_variant::<B>(&all, &cached, life).await;
                self.shared.replace_vary_index::<B>(primary, vary_index, new).await;
                CacheAnswer::Retry
            }
        }
    }

    /// Stores a response as the first variant of its target, and returns the `Vary` index by which
    /// requests find their variants.
    ///
    /// A response with other tags than that of variants is not stored here. One of them may have been
    /// invalidated during this load, and only a commit under the lease of the load can tell. So the next
    /// request for the variant loads it, under a lease of its own. If the variants expire during the load of a
    /// target without an index, the index is not stored, and nothing finds the variant.
    async fn first_variant<B: Send + 'static>(
        &self,
        names: &[HeaderName],
        cached: &Arc<CachedResponse>,
        life: Duration,
    ) -> VaryIndex {
        let cache_request = &self.fetch_request.cache_request;
        let vary_index = VaryIndex::new(names, life);
        let key = vary_index.key_for(&cache_request.primary, &cache_request.parts.headers);
        let is_stored = cached.tags.len() == 1 && self.fetch_request.vary_index.is_none();
        if is_stored {
            self.note_variant::<B>(&vary_index, &key, life).await;
            self.shared.keep::<B>(key, cached).await;
        }
        cache_request.left().own = Some((Arc::clone(cached), is_stored));
        vary_index
    }

    /// Adds a variant to the table of variants, and removes the stored variant that it displaces.
    async fn note_variant<B: Send + 'static>(
        &self,
        vary_index: &VaryIndex,
        key: &Key,
        life: Duration,
    ) {
        let primary = &self.fetch_request.cache_request.primary;
        if let Some(gone) = self.shared.parts.variants.add(vary_index, primary, key, life) {
            // What is stored for no time leaves nothing.
            let any = CacheAnswer::VaryIndex(Arc::new(vary_index.clone()));
            let client = &self.shared.client;
            client.replace::<CacheAnswer<B>>(gone, any, Lifetimes::default(), |_| true).await;
        }
    }
}

fn passing<B>(
    response: Response<CacheBody<B>>,
    why: PrivateReason,
    origin: OriginInfo,
    is_own: bool,
) -> CacheAnswer<B> {
    let passing = Passthrough { response, why, origin, is_own };
    CacheAnswer::Passthrough(Arc::new(Mutex::new(Some(passing))))
}
