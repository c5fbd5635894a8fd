//! The ways of a request: through the cache by an exchange, past it, or answered from the store.

use std::sync::Arc;

use bellwether::adapter::AdapterCache;
use bellwether::stats::RequestRecord;
use bellwether::{BoxError, BypassReason, CacheStatus, StaleReason};
use bellwether_body::{BodyObserver, CacheBody};
use http::{HeaderMap, Request, Response};
use tokio::time::{Instant, timeout};

use super::cache_request::{CacheRequest, Origin, OriginBody, check_not_modified};
use super::codec::HttpCodec;
use super::exchange::{Exchange, NextStep, answer_from};
use super::fetch::OriginFetch;
use super::layer_state::LayerState;
use super::refusal;
use super::report::{ForwardReason, Report};
use super::rules::{self, Slice};

/// The response of the origin to a request, of which nothing is stored.
pub(super) async fn ask<S: Origin<Q, B>, Q: Send + 'static, B>(
    client: &AdapterCache<HttpCodec>,
    inner: S,
    request: Request<Q>,
) -> Result<Response<B>, BoxError> {
    let has_conditions = rules::asks_if_modified(request.headers());
    let response = client.load_alone(None, inner, request).await?.map_err(Into::into)?;
    check_not_modified(response.status(), has_conditions)?;
    Ok(response)
}

pub(super) fn forwarded<B>(
    why: ForwardReason,
    answered: Result<Response<B>, BoxError>,
) -> Response<CacheBody<B>> {
    match answered {
        Ok(response) => Report::forwarded(why, response),
        Err(error) => refusal::of_origin(&*error),
    }
}

/// Answers a request from the cache. Or past it: if the last responses of the target were private, and if
/// the request is for a part that no stored response has.
pub(super) async fn serve<S: Origin<(), B>, B: OriginBody>(
    exchange: Exchange<S>,
    record: &RequestRecord,
) -> Response<CacheBody<B>> {
    let (shared, cache_request) = (&exchange.fetch.shared, &exchange.cache_request);
    let permit = shared.bypass(cache_request);
    let is_only_if_cached = cache_request.demand.only_if_cached;
    if permit.is_none() && !is_only_if_cached && !is_behind_all(shared, cache_request) {
        return serve_coalesced(exchange, record).await;
    }
    let located = shared.locate::<B>(&cache_request.primary, &cache_request.parts.headers).await;
    let is_stale = located.as_ref().is_some_and(|located| !located.entry.is_fresh());
    match located.as_ref().and_then(|located| answer_from(shared, located, cache_request)) {
        // As for any other use of a stale response, an exchange starts the revalidation.
        Some(_) if is_stale && !is_only_if_cached => {
            return serve_coalesced(exchange, record).await;
        }
        Some(answer) => return answer,
        None if is_only_if_cached => return refusal::not_kept(),
        None => {}
    }
    let why = match located {
        Some(_) if is_stale => "stale",
        Some(_) => "request",
        None => "uri-miss",
    };
    let exchange = exchange.with_fallback(located.as_ref());
    let answer = match exchange.cache_request.is_for_part() {
        true => forward_past(exchange, (why, None)).await,
        false => fetch_uncoalesced(exchange).await,
    };
    drop(permit);
    answer
}

/// Whether a request is for a range that begins behind the largest response that is stored.
fn is_behind_all(shared: &LayerState, request: &CacheRequest) -> bool {
    let most = shared.client.max_entry_bytes() as u64;
    request.is_for_range()
        && rules::slice(&request.parts.headers, &HeaderMap::new(), most) == Slice::Unsatisfiable
}

/// Looks up and loads until a request has its response. For a head or a range, the whole is loaded.
async fn serve_coalesced<S: Origin<(), B>, B: OriginBody>(
    mut exchange: Exchange<S>,
    record: &RequestRecord,
) -> Response<CacheBody<B>> {
    loop {
        let fetch_request = exchange.fetch_request();
        let key = fetch_request.key.clone();
        let shared = &exchange.fetch.shared;
        let options = exchange.options(record);
        let asked = shared.client.request(key, options, &exchange.fetch, fetch_request);
        let (answer, status) = asked.with_status().await;
        match exchange.answered(answer, &status) {
            NextStep::Answer(response) => return response,
            NextStep::Fetch => {}
            NextStep::Alone if !exchange.cache_request.is_for_part() => {
                return fetch_uncoalesced(exchange).await;
            }
            NextStep::Alone | NextStep::Bypass => {
                return forward_past(exchange, NOT_SHARED).await;
            }
        }
    }
}

/// Forwards a request for which the cache finds no response that stays. In place of an error of the origin,
/// a stale one is served (RFC 5861, section 4).
async fn forward_past<S: Origin<(), B>, B: OriginBody>(
    exchange: Exchange<S>,
    why: ForwardReason,
) -> Response<CacheBody<B>> {
    let (OriginFetch { inner, shared }, cache_request) = (&exchange.fetch, &exchange.cache_request);
    let mut request = exchange.fetch_request().request(cache_request.parts.headers.clone());
    *request.method_mut() = cache_request.parts.method.clone();
    let answered = ask(&shared.client, inner.clone(), request).await;
    if let Ok(response) = &answered {
        cache_request.note_answer(response.status(), response.headers(), shared.unstored());
    }
    let has_failed = answered.as_ref().map_or(true, |it| it.status().is_server_error());
    if has_failed
        && let Some(stale) = exchange.stale_on_error(StaleReason::LoadFailed, answered.is_ok())
    {
        return stale;
    }
    forwarded(why, answered)
}

const NOT_SHARED: ForwardReason = ("bypass", Some("not-shared"));

/// Answers a request from the origin, without waiting for other requests. A response that could be
/// shared is not stored.
async fn fetch_uncoalesced<S: Origin<(), B>, B: OriginBody>(
    exchange: Exchange<S>,
) -> Response<CacheBody<B>> {
    let shared = Arc::clone(&exchange.fetch.shared);
    let Some(gates) = &shared.parts.unshared else { return fetch_alone(exchange).await };
    let entering = gates.enter(exchange.cache_request.primary.digest());
    let Ok(permit) = timeout(shared.client.load_timeout(), entering).await else {
        return refusal::too_many();
    };
    let answer = fetch_alone(exchange).await;
    let until = Instant::now() + shared.client.collect_within();
    answer.map(|body| body.observed_by(BodyObserver::new(usize::MAX, until, |_| drop(permit))))
}

async fn fetch_alone<S: Origin<(), B>, B: OriginBody>(
    mut exchange: Exchange<S>,
) -> Response<CacheBody<B>> {
    let mut fetch_request = exchange.fetch_request();
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
            forward_past(exchange, NOT_SHARED).await
        }
    }
}
