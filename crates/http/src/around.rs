//! Requests that load nothing that is kept: they go to the origin, or are answered by what is kept.

use std::collections::HashSet;
use std::time::SystemTime;

use bellwether::BoxError;
use bellwether::adapter::BypassPermit;
use bellwether::{BypassReason, CacheStatus, Key};
use bellwether_body::{CacheBody, KeptResponse};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use tokio::runtime::Handle;
use tower::{Service, ServiceExt};

use super::answer;
use super::answered::Answered;
use super::asked::CacheRequest;
use super::kept::{Disposition, OriginInfo};
use super::mode::StorageDecision;
use super::origin::{self, Origin};
use super::refusal;
use super::report::{Report, seconds};
use super::rules::{self, HeadSays, Times, Why};
use super::shared::{LayerState, Located};
use super::target::Target;
use super::visit::{Exchange, NextStep};

/// Passes a request on.
pub(super) async fn pass<S, ReqB, B>(
    inner: S,
    request: Request<ReqB>,
    why: &'static str,
) -> Response<CacheBody<B>>
where
    S: Service<Request<ReqB>, Response = Response<B>>,
    S::Error: Into<BoxError>,
{
    let has_conditions = rules::asks_if_modified(request.headers());
    let answered = inner.oneshot(request).await.map_err(Into::into).and_then(|response| {
        origin::check_not_modified(response.status(), has_conditions).map(|()| response)
    });
    match answered {
        Ok(response) => {
            let report = Report::around(why, response.status());
            let mut response = response.map(CacheBody::passing);
            report.add_to(response.headers_mut());
            response
        }
        Err(error) => refusal::of_origin(&error),
    }
}

/// Passes on a request that may change something, and removes what is not good any more then.
///
/// # Cancel safety
/// If it is dropped, what is kept for its target is removed in the background.
pub(super) async fn change<S, ReqB, B>(
    inner: S,
    shared: LayerState,
    request: Request<ReqB>,
    changes: Changes,
) -> Response<CacheBody<B>>
where
    S: Service<Request<ReqB>, Response = Response<B>>,
    S::Error: Into<BoxError>,
{
    let method = request.method().clone();
    let mut owed = Owed(Some((shared.clone(), changes.own_keys())));
    match inner.oneshot(request).await.map_err(Into::<BoxError>::into) {
        Ok(response) => {
            let gone = changes.keys(&method, response.status(), response.headers());
            shared.invalidate(gone).await;
            owed.0 = None;
            let report = Report::around("method", response.status());
            let mut response = response.map(CacheBody::passing);
            report.add_to(response.headers_mut());
            response
        }
        // It may have been done all the same.
        Err(error) => refusal::of_origin(&error),
    }
}

/// What is to be removed if the outcome of a change is not known.
struct Owed(Option<(LayerState, HashSet<Key>)>);

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some((shared, keys)) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move { shared.invalidate(keys).await });
        }
    }
}

/// What a request may change.
#[derive(Debug)]
pub(super) enum Changes {
    /// What is kept for a target, and what the answer names besides.
    Target(Target),
    /// What is kept under a key.
    Key(Key),
}

impl Changes {
    fn own_keys(&self) -> HashSet<Key> {
        match self {
            Self::Target(target) => target.keys(),
            Self::Key(key) => [key.clone()].into(),
        }
    }

    fn keys(&self, method: &Method, status: StatusCode, response: &HeaderMap) -> HashSet<Key> {
        match self {
            Self::Target(target) => {
                let uris = target.uris();
                let gone =
                    uris.iter().flat_map(|uri| rules::invalidated(method, uri, status, response));
                let gone = gone.filter_map(|uri| Target::of_uri(&uri));
                gone.flat_map(|target| target.keys()).collect()
            }
            Self::Key(key) => {
                let nowhere = http::Uri::default();
                let is_changed =
                    !rules::invalidated(method, &nowhere, status, &HeaderMap::new()).is_empty();
                is_changed.then(|| key.clone()).into_iter().collect()
            }
        }
    }
}

/// Answers a request by what is kept; what is not is for the origin, if it may be asked.
pub(super) async fn look<S, ReqB, B>(
    inner: S,
    shared: LayerState,
    asked: CacheRequest,
    body: ReqB,
) -> Response<CacheBody<B>>
where
    S: Service<Request<ReqB>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
{
    let located = shared.locate::<B>(&asked.primary, &asked.parts.headers).await;
    if let Some(answer) = located.as_ref().and_then(|located| given(&shared, located, &asked)) {
        return answer;
    }
    let why = match &located {
        _ if asked.demand.only_if_cached => return refusal::not_kept(),
        Some(located) if !located.entry.is_fresh() => "stale",
        Some(_) => "request",
        None => "uri-miss",
    };
    let CacheRequest { parts, demand, .. } = asked;
    let is_head = parts.method == Method::HEAD;
    let began = SystemTime::now();
    let fields = parts.headers.clone();
    let response = pass(inner, Request::from_parts(parts, body), why).await;
    let times = Times { asked: began, answered: SystemTime::now() };
    let (status, said) = (response.status(), response.headers());
    if is_head
        && let Some(located) = located
        && demand.may_share(located.whole.response.note.consent)
    {
        hear::<B>(&shared, located, &fields, status, said, times).await;
    }
    response
}

/// Answers a request by what is kept, or else by the origin, without waiting for other requests.
pub(super) async fn bypass<S, ReqB, B>(
    exchange: Exchange<S>,
    bypassing: BypassPermit,
) -> Response<CacheBody<B>>
where
    S: Origin<ReqB, B>,
    ReqB: Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let asked = &exchange.asked;
    let located = exchange.fetch.shared.locate::<B>(&asked.primary, &asked.parts.headers).await;
    let shared = &exchange.fetch.shared;
    if let Some(answer) = located.as_ref().and_then(|located| given(shared, located, asked)) {
        return answer;
    }
    let answer = alone::<_, ReqB, _>(exchange).await;
    drop(bypassing);
    answer
}

/// Answers a request by the origin, without waiting for other requests and without keeping what
/// all could have.
pub(super) async fn alone<S, ReqB, B>(mut exchange: Exchange<S>) -> Response<CacheBody<B>>
where
    S: Origin<ReqB, B>,
    ReqB: Default + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (mut fetch_request, _) = exchange.fetch_request::<ReqB>();
    fetch_request.is_alone = true;
    let found = match exchange.fetch.clone().oneshot(fetch_request).await {
        Ok(found) => found,
        Err(error) => return refusal::of_origin(&error),
    };
    match exchange.answered::<ReqB, B>(Ok(found), &CacheStatus::Bypass(BypassReason::NotKept)) {
        NextStep::Answer(answer) => answer,
        NextStep::Ask(..) | NextStep::Alone | NextStep::Around => {
            let (fetch_request, _) = exchange.fetch_request::<ReqB>();
            let request = fetch_request.request(exchange.asked.parts.headers.clone());
            pass(exchange.fetch.inner.clone(), request, "bypass").await
        }
    }
}

/// What was found, if it will do.
fn given<B>(
    shared: &LayerState,
    located: &Located,
    asked: &CacheRequest,
) -> Option<Response<CacheBody<B>>> {
    let report = will_do(located, asked)?;
    if located.vary_index.is_some() {
        shared.variants.touch(&asked.primary, &located.key);
    }
    Some(answer::answer(&located.whole, &asked.parts, &report))
}

/// How it is reported that what was found is given out, if it will do.
fn will_do(located: &Located, asked: &CacheRequest) -> Option<Report> {
    let Located { entry, whole, .. } = located;
    let fresh_for = whole.fresh_for(entry.fresh_for());
    let is_good = entry.is_fresh() || entry.serves_while_revalidating();
    let note = &whole.response.note;
    let will_do = is_good
        && asked.demand.may_share(note.consent)
        && asked.demand.accepts(note.age(), fresh_for);
    let ttl = match (fresh_for, entry.stale_for()) {
        (_, Some(stale)) => -seconds(stale),
        (fresh, None) => seconds(fresh.unwrap_or_default()),
    };
    will_do.then(|| Report::hit(ttl))
}

/// Hears what the answer to a HEAD says of what is kept (RFC 9111, section 4.3.5).
async fn hear<B: Send + 'static>(
    shared: &LayerState,
    located: Located,
    request: &HeaderMap,
    status: StatusCode,
    head: &HeaderMap,
    times: Times,
) {
    let stored = &located.whole.response;
    match rules::head_says(&stored.headers, status, head) {
        HeadSays::Nothing => {}
        HeadSays::Changed => shared.expire(located.key).await,
        HeadSays::Same => {
            let headers = rules::freshen(&stored.headers, head);
            let KeptResponse { status, body, trailers, .. } = stored.clone();
            let judgement = shared.mode.classify(&Method::GET, request, status, &headers, times);
            let terms = match judgement {
                StorageDecision::Keep(terms) | StorageDecision::Validate(terms, _)
                    if located.is_told_by(&terms.vary) =>
                {
                    terms
                }
                // Kept by fewer fields, it would be given to whom it is not for.
                StorageDecision::Keep(_)
                | StorageDecision::Validate(..)
                | StorageDecision::Private(Why::Vary) => {
                    return shared.expire(located.key).await;
                }
                _ => return,
            };
            let fresh =
                Answered { status, headers, body, trailers, said: OriginInfo::default(), times };
            let whole = fresh.whole(Disposition::Keep(terms.windows), &terms);
            let fence = located.entry.fence();
            // What was invalidated or replaced meanwhile stays so.
            let is_same = |entry: Option<&bellwether::store::Entry>| {
                entry.is_some_and(|entry| entry.fence() == fence)
            };
            shared.keep::<B>(located.key, &whole, is_same).await;
        }
    }
}
