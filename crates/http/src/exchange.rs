//! `Exchange`: one request through the cache, and which key it looks up next.

use std::sync::Arc;
use std::time::Duration;

use bellwether::adapter::{RequestOptions, stale_reason};
use bellwether::codec::Cacheability;
use bellwether::stats::RequestRecord;
use bellwether::{BoxError, CacheStatus, Error, Key, StaleReason};
use bellwether_body::CacheBody;
use http::Response;
use http::request::Parts;
use tokio::time::Instant;

use super::answered_fetch::AnsweredWithError;
use super::cache_request::{CacheRequest, FetchRequest};
use super::codec::{CacheAnswer, CachedResponse, OriginInfo, Passthrough};
use super::fetch::OriginFetch;
use super::layer_state::{LayerState, Located};
use super::report::{LookupKind, Report, seconds};
use super::retry_pool::PooledRequest;
use super::rules::Demand;
use super::vary_index::VaryIndex;
use super::{answer, refusal};

/// One request through the cache.
pub(super) struct Exchange<S> {
    pub(super) fetch: OriginFetch<S>,
    pub(super) cache_request: Arc<CacheRequest>,
    /// The `Vary` index that selects its variant, once the target turned out to have variants.
    vary_index: Option<Arc<VaryIndex>>,
    /// The stored response does not satisfy the request.
    forces_refresh: bool,
    /// A stored response that does not satisfy the request, because the origin was to confirm it. The request
    /// gets it if its load fails, and `stale-if-error` allows it.
    fallback: Option<StoredFallback>,
    /// It waits once more, after an error that another request may have caused.
    pooled: Option<PooledRequest>,
    /// How many more lookups it may start.
    left: u8,
}

/// A stored response, and for how long it was stale when it was found.
struct StoredFallback {
    cached: Arc<CachedResponse>,
    stale_for: Duration,
    found: Instant,
    /// How long it is served stale if the origin gives no answer, where that is known.
    if_disconnected: Duration,
}

/// What an exchange does after an answer.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
pub(super) enum NextStep<B> {
    Answer(Response<CacheBody<B>>),
    /// Look up once more.
    Fetch,
    /// Ask the origin without coalescing, since the response that it waited for is private, or an
    /// error that another request may have caused.
    Alone,
    /// Forward the request to the origin, and store nothing.
    Bypass,
}

impl<S> Exchange<S> {
    pub(super) fn new(fetch: OriginFetch<S>, cache_request: CacheRequest) -> Self {
        Self {
            fetch,
            cache_request: Arc::new(cache_request),
            vary_index: None,
            forces_refresh: false,
            fallback: None,
            pooled: None,
            left: ROUNDS,
        }
    }

    /// The same request, with a stored response that does not satisfy it.
    pub(super) fn with_fallback(self, located: Option<&Located>) -> Self {
        let Some(Located { entry, cached, vary_index, .. }) = located else { return self };
        let fallback = StoredFallback {
            cached: Arc::clone(cached),
            stale_for: entry.stale_for().unwrap_or_default(),
            found: Instant::now(),
            if_disconnected: entry.lifetimes().if_error(),
        };
        let (fallback, forces_refresh) = (Some(fallback), entry.is_fresh());
        Self { vary_index: vary_index.clone(), forces_refresh, fallback, ..self }
    }

    /// The options of the next lookup.
    pub(super) fn options(&self, record: &RequestRecord) -> RequestOptions {
        let primary = &self.cache_request.primary;
        let tags = VaryIndex::tags_of_request(self.vary_index.as_deref(), primary);
        // The response to a request without credentials can probably be shared. So after a wait for
        // a private one it asks the cache once more, before it loads for itself.
        RequestOptions::default()
            .tagged(tags)
            .force_refresh(self.forces_refresh)
            .retry_private(!self.cache_request.has_credentials)
            .return_bypass()
            .part_of(record)
    }

    /// The load that it needs now.
    pub(super) fn fetch_request(&self) -> FetchRequest {
        FetchRequest::new(&self.cache_request, self.vary_index.clone(), self.forces_refresh)
    }

    /// Decides what follows from an answer of the cache.
    pub(super) fn answered<B>(
        &mut self,
        answer: Result<CacheAnswer<B>, Error<BoxError>>,
        status: &CacheStatus,
    ) -> NextStep<B> {
        match answer {
            Err(_) if matches!(status, CacheStatus::Bypass(_)) => NextStep::Alone,
            Err(error) => {
                let has_answered = has_answered(&error);
                if let Some(stale) = self.stale_on_error(stale_reason(&error), has_answered) {
                    return NextStep::Answer(stale);
                }
                let again = if has_answered { self.after_error() } else { None };
                again.unwrap_or_else(|| NextStep::Answer(refusal::of(&error)))
            }
            Ok(found) if has_failed(&found) => {
                match self.stale_on_error(StaleReason::LoadFailed, true) {
                    Some(stale) => NextStep::Answer(stale),
                    None => self.found(found, status),
                }
            }
            Ok(found) => self.found(found, status),
        }
    }

    /// Whether it waits again or asks the origin for itself. Another request may have caused the error that
    /// it waited for. That error is no stored response, so one with credentials never takes it, and the
    /// others do the second time. Nor does it take what was loaded again for another request and may not be
    /// shared with this one.
    fn again_after<B>(
        &mut self,
        cached: &CachedResponse,
        status: &CacheStatus,
    ) -> Option<NextStep<B>> {
        // With a key of its own, the program has said on what a response depends.
        let is_its_own = self.fetch.shared.rules.key.is_some()
            || !matches!(status, CacheStatus::Collapsed { .. });
        match cached.cacheability {
            Cacheability::Unconfirmed | Cacheability::Failure if is_its_own => None,
            Cacheability::Failure if !self.cache_request.has_credentials => None,
            Cacheability::Unconfirmed | Cacheability::Failure => self.after_error(),
            _ if self.forces_refresh
                && matches!(status, CacheStatus::Collapsed { .. })
                && !self.cache_request.demand.may_share(cached.response.note.consent) =>
            {
                Some(NextStep::Alone)
            }
            _ => None,
        }
    }

    /// What it does after an error that another request has got. The first time it waits once more, for a
    /// load that asks the origin with other requests, too. The second time it asks the origin for itself if
    /// it has credentials.
    fn after_error<B>(&mut self) -> Option<NextStep<B>> {
        if self.pooled.is_none() {
            let key = self.fetch_request().key;
            self.pooled = Some(self.fetch.shared.parts.retries.enter(&key, &self.cache_request));
            return Some(self.fetch_next());
        }
        self.cache_request.has_credentials.then_some(NextStep::Alone)
    }

    fn found<B>(&mut self, found: CacheAnswer<B>, status: &CacheStatus) -> NextStep<B> {
        if let CacheAnswer::CachedResponse(cached) = &found
            && let Some(again) = self.again_after(cached, status)
        {
            return again;
        }
        match found {
            CacheAnswer::CachedResponse(cached)
                if self.forces_refresh
                    || satisfies(&self.cache_request.demand, &cached, status) =>
            {
                self.note_use(status);
                self.give(&cached, status)
            }
            CacheAnswer::CachedResponse(cached) => {
                self.fallback = Some(StoredFallback::new(cached, status));
                self.forces_refresh = true;
                self.fetch_next()
            }
            // It has the whole, of which the origin gives it the part.
            CacheAnswer::Passthrough(_) if self.cache_request.is_for_range() => NextStep::Bypass,
            CacheAnswer::Passthrough(_) | CacheAnswer::VaryIndex(_) | CacheAnswer::Retry => {
                self.pass(&found, status).unwrap_or_else(|| self.redirected(found, status))
            }
        }
    }

    /// The stored response that did not satisfy the request, if it may be served because there is no
    /// newer one. What a request demands gives way to what the response allows: `stale-if-error` counts
    /// "regardless of other freshness information" (RFC 5861, section 4), and for a fresh response as for
    /// a stale one. `has_answered`: the origin has given an answer, which is an error.
    pub(super) fn stale_on_error<B>(
        &self,
        why: StaleReason,
        has_answered: bool,
    ) -> Option<Response<CacheBody<B>>> {
        let StoredFallback { cached, stale_for, found, if_disconnected } =
            self.fallback.as_ref()?;
        let note = &cached.response.note;
        let is_fresh = stale_for.is_zero() && note.fresh_for().is_some();
        let stale_for = if is_fresh { Duration::ZERO } else { *stale_for + found.elapsed() };
        let silent = if has_answered { Duration::ZERO } else { *if_disconnected };
        let is_over = stale_for >= note.if_error.max(silent);
        let status = CacheStatus::Stale { why, stale_for };
        let CacheRequest { demand, parts, .. } = &*self.cache_request;
        let is_usable = !is_over && demand.may_share(note.consent);
        is_usable.then(|| give(self.lookup(), parts, cached, self.origin(cached, &status), &status))
    }

    fn fetch_next<B>(&mut self) -> NextStep<B> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return NextStep::Bypass;
        }
        NextStep::Fetch
    }

    /// Counts a use of a stored variant.
    fn note_use(&self, status: &CacheStatus) {
        if let (Some(vary_index), CacheStatus::Hit { .. } | CacheStatus::Stale { .. }) =
            (&self.vary_index, status)
        {
            let CacheRequest { primary, parts, .. } = &*self.cache_request;
            let key = vary_index.key_for(primary, &parts.headers);
            self.fetch.shared.parts.variants.touch(&key);
        }
    }

    fn give<B>(&self, cached: &CachedResponse, status: &CacheStatus) -> NextStep<B> {
        let parts = &self.cache_request.parts;
        let mut answer = give(self.lookup(), parts, cached, self.origin(cached, status), status);
        if let CacheStatus::Led { .. } | CacheStatus::Bypass(_) = status {
            let fields = std::mem::take(&mut self.cache_request.left().fields);
            answer.headers_mut().extend(fields);
        }
        NextStep::Answer(answer)
    }

    /// How the origin answered the load of this response, or the one that this response replaces.
    fn origin(&self, cached: &CachedResponse, status: &CacheStatus) -> OriginInfo {
        match status {
            CacheStatus::Stale { .. } => {
                OriginInfo { status: self.cache_request.left().status, was_stale: true }
            }
            _ => cached.origin,
        }
    }

    /// A response that passes through, unless another caller has it already.
    fn pass<B>(&self, found: &CacheAnswer<B>, status: &CacheStatus) -> Option<NextStep<B>> {
        let Passthrough { response, why, origin, .. } = found.take()?;
        let report = Report::not_kept(self.lookup(), status, origin, why);
        let response = answer::passed(response, &self.cache_request.parts, &report);
        Some(NextStep::Answer(response))
    }

    /// What follows if the response is under another key. Its own load has left it to the request itself.
    fn redirected<B>(&mut self, found: CacheAnswer<B>, status: &CacheStatus) -> NextStep<B> {
        let own = self.cache_request.left().own.take();
        if let Some(own) = own {
            let (own, is_stored) = own;
            let status = match status {
                CacheStatus::Led { .. } => CacheStatus::Led { stored: is_stored },
                status => status.clone(),
            };
            return self.give(&own, &status);
        }
        let vary_index = match found {
            // A `Vary` index is stored under a target, never under a variant.
            CacheAnswer::VaryIndex(_) if self.vary_index.is_some() => return NextStep::Bypass,
            CacheAnswer::VaryIndex(vary_index) => {
                self.forces_refresh = false;
                Some(vary_index)
            }
            _ => None,
        };
        self.vary_index = vary_index;
        self.fallback = None;
        self.fetch_next()
    }

    fn lookup(&self) -> LookupKind {
        match &self.vary_index {
            _ if self.forces_refresh => LookupKind::Refetch,
            None => LookupKind::Target,
            Some(_) => LookupKind::Variant,
        }
    }
}

impl StoredFallback {
    /// One that was fresh has been stale since a moment ago.
    fn new(cached: Arc<CachedResponse>, status: &CacheStatus) -> Self {
        let stale_for = match status {
            CacheStatus::Stale { stale_for, .. } => *stale_for,
            _ => Duration::ZERO,
        };
        Self { cached, stale_for, found: Instant::now(), if_disconnected: Duration::ZERO }
    }
}

/// Whether the origin has answered the load of another request with an error. That of its own is an answer.
fn has_answered(error: &Error<BoxError>) -> bool {
    matches!(error, Error::Load(error) if (**error).is::<AnsweredWithError>())
}

/// Whether the origin has answered a load with an error (5xx) that is not stored.
fn has_failed<B>(found: &CacheAnswer<B>) -> bool {
    match found {
        CacheAnswer::CachedResponse(cached) => {
            matches!(cached.cacheability, Cacheability::Failure | Cacheability::Unconfirmed)
                && cached.response.status.is_server_error()
        }
        other => other.passes(|passing| passing.response.status().is_server_error()),
    }
}

/// The response to a request, if it is in the memory of this process. Allocates nothing for a load.
pub(super) fn cached_answer<B: Send + 'static>(
    shared: &LayerState,
    parts: &Parts,
    primary: &Key,
    demand: &Demand,
) -> Option<Response<CacheBody<B>>> {
    let (found, status) = shared.client.cached::<CacheAnswer<B>>(primary)?;
    let CacheAnswer::VaryIndex(vary_index) = &found else {
        return stored_answer(shared, parts, demand, found.response()?, &status, None);
    };
    let key = vary_index.key_for(primary, &parts.headers);
    let (found, status) = shared.client.cached::<CacheAnswer<B>>(&key)?;
    stored_answer(shared, parts, demand, found.response()?, &status, Some(&key))
}

/// The response to a request from what was found in the store, if that satisfies the request.
pub(super) fn answer_from<B>(
    shared: &LayerState,
    located: &Located,
    cache_request: &CacheRequest,
) -> Option<Response<CacheBody<B>>> {
    let Located { key, cached, vary_index, .. } = located;
    let CacheRequest { parts, demand, .. } = cache_request;
    let variant = vary_index.as_ref().map(|_| key);
    stored_answer(shared, parts, demand, cached, &located.status()?, variant)
}

/// The response to a request from a stored one, if that satisfies the request. `variant`: its key, if it
/// is a variant.
fn stored_answer<B>(
    shared: &LayerState,
    parts: &Parts,
    demand: &Demand,
    cached: &CachedResponse,
    status: &CacheStatus,
    variant: Option<&Key>,
) -> Option<Response<CacheBody<B>>> {
    if !satisfies(demand, cached, status) {
        return None;
    }
    variant.iter().for_each(|key| shared.parts.variants.touch(key));
    let lookup = if variant.is_some() { LookupKind::Variant } else { LookupKind::Target };
    Some(give(lookup, parts, cached, cached.origin, status))
}

/// Whether a response satisfies the `Cache-Control` of a request, and may be shared with it. One
/// that was loaded for this request always does.
fn satisfies(demand: &Demand, cached: &CachedResponse, status: &CacheStatus) -> bool {
    let is_kept = match status {
        CacheStatus::Hit { .. } => true,
        CacheStatus::Stale { why, .. } => *why == StaleReason::Revalidating,
        _ => false,
    };
    let fresh_for = match status {
        CacheStatus::Hit { fresh_for } => cached.fresh_for(*fresh_for),
        _ => None,
    };
    let is_own = matches!(status, CacheStatus::Led { .. });
    if !is_own && !demand.may_share(cached.response.note.consent) {
        return false;
    }
    // Most requests demand nothing, and reading the clock takes time.
    !is_kept
        || *demand == Demand::default()
        || demand.accepts(cached.response.note.age(), fresh_for)
}

fn give<B>(
    lookup: LookupKind,
    request: &Parts,
    cached: &CachedResponse,
    origin: OriginInfo,
    status: &CacheStatus,
) -> Response<CacheBody<B>> {
    let report = Report::of(lookup, status, origin);
    let report = match status {
        CacheStatus::Stale { stale_for, .. } if !stale_for.is_zero() => {
            report.ttl(-seconds(*stale_for))
        }
        CacheStatus::Hit { fresh_for } => {
            report.ttl(cached.fresh_for(*fresh_for).map_or(0, seconds))
        }
        CacheStatus::Led { stored: false } if cached.is_for_later() => report.detail("not-stored"),
        _ => match cached.response.note.fresh_for() {
            Some(left) => report.ttl(seconds(left)),
            None => report,
        },
    };
    answer::answer(cached, request, &report)
}

/// How many lookups a request starts at most: for its target, for a variant, a refresh of each, and
/// two more if the `Vary` index is replaced meanwhile. After that the request is forwarded.
const ROUNDS: u8 = 6;
