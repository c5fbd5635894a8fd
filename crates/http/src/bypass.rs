//! The ways of a request: through the cache by an exchange, past it, or answered from the store.

use std::sync::Arc;
use std::time::SystemTime;

use bellwether::adapter::{AdapterCache, BypassPermit};
use bellwether::stats::RequestRecord;
use bellwether::store::Entry;
use bellwether::{BoxError, BypassReason, CacheStatus, StaleReason};
use bellwether_body::{BodyObserver, BufferedResponse, CacheBody};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::cache_request::{CacheRequest, Origin, OriginBody, RequestBody, check_not_modified};
use super::codec::{CompleteResponse, Disposition, HttpCodec, OriginInfo};
use super::exchange::{Exchange, NextStep, answer_from};
use super::fetch::OriginFetch;
use super::layer_state::{LONGEST_OBSERVED, LayerState, Located};
use super::refusal;
use super::report::{ForwardReason, Report};
use super::rules::{self, HeadSays, PrivateReason, Slice, Storing, Terms, Times};

/// Forwards a request to the origin. Nothing of its response is stored.
pub(super) async fn forward<S: Origin<Q, B>, Q: RequestBody, B>(
    client: &AdapterCache<HttpCodec>,
    inner: S,
    request: Request<Q>,
    why: ForwardReason,
) -> Response<CacheBody<B>> {
    forwarded(why, ask(client, inner, request).await)
}

/// The response of the origin to a request, of which nothing is stored.
async fn ask<S: Origin<Q, B>, Q: RequestBody, B>(
    client: &AdapterCache<HttpCodec>,
    inner: S,
    request: Request<Q>,
) -> Result<Response<B>, BoxError> {
    let has_conditions = rules::asks_if_modified(request.headers());
    let response = client.load_alone(None, inner, request).await?.map_err(Into::into)?;
    check_not_modified(response.status(), has_conditions)?;
    Ok(response)
}

fn forwarded<B>(
    why: ForwardReason,
    answered: Result<Response<B>, BoxError>,
) -> Response<CacheBody<B>> {
    match answered {
        Ok(response) => Report::forwarded(why, response),
        Err(error) => refusal::of_origin(&*error),
    }
}

/// Answers a request from the cache: looks up and loads until the request has its response.
pub(super) async fn serve<S: Origin<Q, B>, Q: RequestBody, B: OriginBody>(
    mut exchange: Exchange<S>,
    record: &RequestRecord,
) -> Response<CacheBody<B>> {
    loop {
        let fetch_request = exchange.fetch_request::<Q>();
        let key = fetch_request.key.clone();
        let shared = &exchange.fetch.shared;
        let options = exchange.options(record);
        let asked = shared.client.request(key, options, &exchange.fetch, fetch_request);
        let (answer, status) = asked.with_status().await;
        match exchange.answered(answer, &status) {
            NextStep::Answer(response) => return response,
            NextStep::Fetch => {}
            NextStep::Alone if !exchange.cache_request.is_for_part() => {
                return fetch_uncoalesced::<_, Q, _>(exchange).await;
            }
            NextStep::Alone | NextStep::Bypass => return forward_past::<_, Q, _>(exchange).await,
        }
    }
}

/// Forwards a request for which the cache finds no response that stays.
async fn forward_past<S: Origin<Q, B>, Q: RequestBody, B: OriginBody>(
    exchange: Exchange<S>,
) -> Response<CacheBody<B>> {
    let headers = exchange.cache_request.parts.headers.clone();
    let mut request = exchange.fetch_request::<Q>().request(headers);
    *request.method_mut() = exchange.cache_request.parts.method.clone();
    forward(
        &exchange.fetch.shared.client,
        exchange.fetch.inner,
        request,
        ("bypass", Some("not-shared")),
    )
    .await
}

/// Answers a request for a head or a part from the store, or any that says `only-if-cached`. What is not
/// stored is loaded whole, once for all, if it may be stored. If not, the request is forwarded.
pub(super) async fn serve_stored<S: Origin<Q, B>, Q: RequestBody, B: OriginBody>(
    fetch: OriginFetch<S>,
    cache_request: CacheRequest,
    body: Q,
    record: &RequestRecord,
) -> Response<CacheBody<B>> {
    let shared = &fetch.shared;
    let located = shared.locate::<B>(&cache_request.primary, &cache_request.parts.headers).await;
    let is_only_if_cached = cache_request.demand.only_if_cached;
    let answer = located.as_ref().and_then(|located| answer_from(shared, located, &cache_request));
    let is_stale = located.as_ref().is_some_and(|located| !located.entry.is_fresh());
    match answer {
        // As for any other use of a stale response, an exchange starts the revalidation.
        Some(_) if is_stale && !is_only_if_cached => {
            return serve::<_, Q, _>(Exchange::new(fetch, cache_request), record).await;
        }
        Some(answer) => return answer,
        None if is_only_if_cached => return refusal::not_kept(),
        None => {}
    }
    let permit = shared.bypass(&cache_request);
    if permit.is_none() && loads_whole(shared, &cache_request, located.as_ref()) {
        return serve::<_, Q, _>(Exchange::new(fetch, cache_request), record).await;
    }
    let why = match located {
        Some(_) if is_stale => "stale",
        Some(_) => "request",
        None => "uri-miss",
    };
    forward_head(fetch, cache_request, body, located, (why, None)).await
}

/// Whether the whole response is loaded for a request for its head or a part. The origin may answer HEAD
/// without that, and does so for a stored response. What begins behind the largest that is stored is a
/// part of none.
fn loads_whole(shared: &LayerState, request: &CacheRequest, located: Option<&Located>) -> bool {
    let most = shared.client.max_entry_bytes() as u64;
    let headers = &request.parts.headers;
    match request.is_for_range() {
        true => rules::slice(headers, &HeaderMap::new(), most) != Slice::Unsatisfiable,
        false => located.is_none(),
    }
}

/// Forwards a request that no stored response answers. The response to HEAD updates a stored one. In
/// place of an error of the origin, a stale one is served (RFC 5861, section 4).
async fn forward_head<S: Origin<Q, B>, Q: RequestBody, B: OriginBody>(
    fetch: OriginFetch<S>,
    cache_request: CacheRequest,
    body: Q,
    located: Option<Located>,
    why: ForwardReason,
) -> Response<CacheBody<B>> {
    let exchange = Exchange::new(fetch, cache_request).with_fallback(located.as_ref());
    let (OriginFetch { inner, shared }, cache_request) = (&exchange.fetch, &exchange.cache_request);
    let request_time = SystemTime::now();
    let request = Request::from_parts(cache_request.parts.clone(), body);
    let answered = ask(&shared.client, inner.clone(), request).await;
    let times = Times { request_time, response_time: SystemTime::now() };
    if let Ok(response) = &answered {
        cache_request.note_answer(response.status(), response.headers(), shared.unstored());
    }
    let has_failed = answered.as_ref().map_or(true, |it| it.status().is_server_error());
    if has_failed
        && let Some(stale) = exchange.stale_on_error(StaleReason::LoadFailed, answered.is_ok())
    {
        return stale;
    }
    if let Ok(response) = &answered
        && cache_request.parts.method == Method::HEAD
        && let Some(located) = located
        && cache_request.demand.may_share(located.cached.response.note.consent)
    {
        let (status, head) = (response.status(), response.headers());
        update_from_head::<B>(shared, located, cache_request, (status, head), times).await;
    }
    forwarded(why, answered)
}

/// Answers a request from the store or from the origin, without waiting for other requests.
pub(super) async fn serve_uncoalesced<S: Origin<Q, B>, Q: RequestBody, B: OriginBody>(
    exchange: Exchange<S>,
    permit: BypassPermit,
    record: &RequestRecord,
) -> Response<CacheBody<B>> {
    let (shared, cache_request) = (&exchange.fetch.shared, &exchange.cache_request);
    let located = shared.locate::<B>(&cache_request.primary, &cache_request.parts.headers).await;
    if let Some(located) = &located
        && let Some(answer) = answer_from(shared, located, cache_request)
    {
        return match located.entry.is_fresh() {
            true => answer,
            // As for any other use of a stale response, an exchange starts the revalidation.
            false => serve::<_, Q, _>(exchange, record).await,
        };
    }
    let exchange = exchange.with_fallback(located.as_ref());
    let answer = fetch_uncoalesced::<_, Q, _>(exchange).await;
    drop(permit);
    answer
}

/// Answers a request from the origin, without waiting for other requests. A response that could be
/// shared is not stored.
async fn fetch_uncoalesced<S: Origin<Q, B>, Q: RequestBody, B: OriginBody>(
    exchange: Exchange<S>,
) -> Response<CacheBody<B>> {
    let shared = Arc::clone(&exchange.fetch.shared);
    let Some(gates) = &shared.parts.unshared else { return fetch_alone::<_, Q, _>(exchange).await };
    let entering = gates.enter(exchange.cache_request.primary.digest());
    let Ok(permit) = timeout(shared.client.load_timeout(), entering).await else {
        return refusal::too_many();
    };
    let answer = fetch_alone::<_, Q, _>(exchange).await;
    let until = Instant::now() + shared.client.collect_within().min(LONGEST_OBSERVED);
    // A task holds the permit, as a body that its client does not read is not polled.
    let (is_complete, completed) = oneshot::channel::<()>();
    tokio::spawn(async move {
        _ = timeout_at(until, completed).await;
        drop(permit);
    });
    answer.map(|body| {
        body.observed_by(BodyObserver::new(usize::MAX, until, move |_| drop(is_complete)))
    })
}

async fn fetch_alone<S: Origin<Q, B>, Q: RequestBody, B: OriginBody>(
    mut exchange: Exchange<S>,
) -> Response<CacheBody<B>> {
    let mut fetch_request = exchange.fetch_request::<Q>();
    fetch_request.is_alone = true;
    fetch_request.tries_others = false;
    let key = fetch_request.key.clone();
    let client = &exchange.fetch.shared.client;
    let loaded = client.load_alone(Some(&key), exchange.fetch.clone(), fetch_request).await;
    let found = match loaded.map_err(BoxError::from).and_then(|loaded| loaded) {
        Ok(found) => found,
        Err(error) => {
            return exchange
                .stale_on_error(StaleReason::LoadFailed, false)
                .unwrap_or_else(|| refusal::of_origin(&*error));
        }
    };
    match exchange.answered(Ok(found), &CacheStatus::Bypass(BypassReason::Private)) {
        NextStep::Answer(answer) => answer,
        NextStep::Fetch | NextStep::Alone | NextStep::Bypass => {
            forward_past::<_, Q, _>(exchange).await
        }
    }
}

/// Updates or expires a stored response by the response to a HEAD (RFC 9111, section 4.3.5).
async fn update_from_head<B: Send + 'static>(
    shared: &LayerState,
    located: Located,
    request: &CacheRequest,
    (status, head): (StatusCode, &HeaderMap),
    times: Times,
) {
    let stored = &located.cached.response;
    let found = (stored.status, &stored.headers, stored.body.len());
    let says = rules::head_says(found, status, head);
    match says {
        HeadSays::Nothing => return,
        HeadSays::Changed => return shared.expire(located.key).await,
        HeadSays::Same | HeadSays::Unproven => {}
    }
    let headers = rules::freshen(&stored.headers, head);
    let terms = match shared.classify(&request.parts.headers, status, &headers, times) {
        Storing::Keep(terms) | Storing::Validate(terms, _)
            if located.is_selected_by(&terms.vary) =>
        {
            terms
        }
        // The stored variant is selected by fewer header fields than `Vary` names now, so it could be
        // served to requests that it does not match.
        Storing::Keep(_) | Storing::Validate(..) | Storing::Private(PrivateReason::Vary) => {
            return shared.expire(located.key).await;
        }
        _ => return,
    };
    if says == HeadSays::Same {
        renew::<B>(shared, located, request, headers, (terms, times)).await;
    }
}

/// Stores a response once more, with these header fields.
async fn renew<B: Send + 'static>(
    shared: &LayerState,
    located: Located,
    request: &CacheRequest,
    headers: HeaderMap,
    (terms, times): (Terms, Times),
) {
    let BufferedResponse { status, body, trailers, .. } = located.cached.response.clone();
    let origin = OriginInfo::default();
    let fresh = CompleteResponse { status, headers, body, trailers, origin, times };
    let tags = match located.vary_index {
        Some(_) => shared.tags_of_variant(&fresh.headers, request),
        None => shared.tags_of(&fresh.headers, &request.parts),
    };
    let disposition = Disposition::Keep(terms.lifetimes);
    let cached = fresh.to_cached(shared.unstored(), disposition, &terms, tags);
    if let Some(index) = &located.vary_index {
        let index = (&request.primary, &**index, located.index_left);
        shared.prolong::<B>(index, terms.lifetimes.life()).await;
    }
    let (is_there, was_fresh) = (located.is_still_there(), located.entry.is_fresh());
    // It may have been expired since the origin was asked.
    let is_same = |it: Option<&Entry>| is_there(it) && it.is_some_and(Entry::is_fresh) == was_fresh;
    shared.keep::<B>(located.key, &cached, is_same).await;
}
