//! `Fetch`: the loader of the core. Asks the origin, and says what is to be kept of the answer.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, header, response};
use http_body::Body;
use tower::{BoxError, Service, ServiceExt};

use super::asked::Errand;
use super::earlier::Earlier;
use super::kept::{Fate, Found, Note, Passing, Said, Spec, Whole};
use super::mode::{self, Judgement, Terms};
use super::origin::{self, Origin};
use super::rules::{self, Times, Why};
use super::shared::Shared;
use crate::response::{CacheBody, Collected, KeptResponse, collect};

/// Asks the origin for what is to be kept.
#[derive(Clone)]
pub(super) struct Fetch<S> {
    pub(super) inner: S,
    pub(super) shared: Shared,
}

impl<S, ReqB, B> Service<Errand<ReqB>> for Fetch<S>
where
    S: Service<Request<ReqB>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    ReqB: Default + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Found<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Found<B>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, errand: Errand<ReqB>) -> Self::Future {
        // The one that is ready goes along.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(fetch(inner, self.shared.clone(), errand))
    }
}

impl<S> fmt::Debug for Fetch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetch").finish_non_exhaustive()
    }
}

async fn fetch<S, ReqB, B>(
    mut inner: S,
    shared: Shared,
    errand: Errand<ReqB>,
) -> Result<Found<B>, BoxError>
where
    S: Origin<ReqB, B>,
    ReqB: Default,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let earlier = Earlier::of::<B>(&shared, &errand.key).await;
    let (request, validates) = earlier.request_for(&errand);
    let mut has_conditions = rules::asks_if_modified(request.headers());
    let again = inner.clone();
    let mut asked = SystemTime::now();
    let mut response = inner.call(request).await.map_err(Into::into)?;
    let mut answered = SystemTime::now();
    if response.status() == StatusCode::NOT_MODIFIED && validates {
        match earlier.validated_by(response.headers()) {
            Some((whole, headers)) => {
                let load = Load { shared: &shared, errand: &errand, earlier: &earlier };
                return load.validated(&whole, headers, Times { asked, answered }).await;
            }
            // It speaks of something else than what is kept.
            None => {
                let request = errand.request(errand.without_conditions());
                has_conditions = false;
                asked = SystemTime::now();
                response = again.oneshot(request).await.map_err(Into::into)?;
                answered = SystemTime::now();
            }
        }
    }
    origin::check_not_modified(response.status(), has_conditions)?;
    let load = Load { shared: &shared, errand: &errand, earlier: &earlier };
    load.received(response, Times { asked, answered }).await
}

/// One load, once the origin has answered.
struct Load<'a, ReqB> {
    shared: &'a Shared,
    errand: &'a Errand<ReqB>,
    earlier: &'a Earlier,
}

impl<ReqB> Load<'_, ReqB> {
    /// What is kept is still good.
    async fn validated<B>(
        &self,
        earlier: &Whole,
        headers: HeaderMap,
        times: Times,
    ) -> Result<Found<B>, BoxError>
    where
        B: Send + 'static,
    {
        let KeptResponse { status, body, trailers, .. } = &earlier.response;
        let judgement = self.judge(*status, &headers, times);
        let fresh = Answered {
            status: *status,
            headers,
            body: body.clone(),
            trailers: trailers.clone(),
            said: self.said(StatusCode::NOT_MODIFIED),
            times,
        };
        self.settle(fresh, judgement).await
    }

    async fn received<B>(&self, response: Response<B>, times: Times) -> Result<Found<B>, BoxError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = response.into_parts();
        let said = self.said(parts.status);
        let judgement = self.judge(parts.status, &parts.headers, times);
        if let Judgement::Private(why) = judgement {
            let response = Response::from_parts(parts, CacheBody::passing(body));
            return self.pass(response, why, said);
        }
        let most = self.shared.within.max_entry_bytes();
        let (body, trailers) = match collect(body, most).await.map_err(Into::into)? {
            Collected::Whole { data, trailers } => (data, trailers),
            Collected::TooLarge { begun, rest } => {
                let response = Response::from_parts(parts, CacheBody::rejoined(begun, rest));
                return self.pass(response, Why::TooLarge, said);
            }
        };
        check_length(&parts.headers, body.len())?;
        let response::Parts { status, headers, .. } = parts;
        self.settle(Answered { status, headers, body, trailers, said, times }, judgement).await
    }

    /// For whom an answer is, and what is to become of it. Nothing else decides that, but that an
    /// answer is too large.
    fn judge(&self, status: StatusCode, headers: &HeaderMap, times: Times) -> Judgement {
        let request = &self.errand.asked.parts.headers;
        let judgement = match self.shared.mode.judge(&Method::GET, request, status, headers, times)
        {
            Judgement::Share | Judgement::Failure if !self.is_for_all_who_wait(headers) => {
                Judgement::Private(Why::Vary)
            }
            Judgement::Share if status.is_server_error() && self.earlier.will_do() => {
                Judgement::Failure
            }
            judgement => judgement,
        };
        self.shared.note_whose(&self.errand.asked.primary, request, status, &judgement);
        judgement
    }

    /// Whether it varies by nothing by which those who wait for this load may differ.
    fn is_for_all_who_wait(&self, headers: &HeaderMap) -> bool {
        match (varies_by(headers), &self.errand.spec) {
            (Some(names), Some(spec)) => spec.covers(&names),
            (Some(names), None) => names.is_empty(),
            (None, _) => false,
        }
    }

    fn said(&self, status: StatusCode) -> Said {
        Said { status: Some(status), was_stale: self.earlier.is_there() }
    }

    /// What becomes of an answer that is here to its end.
    async fn settle<B: Send + 'static>(
        &self,
        answered: Answered,
        judgement: Judgement,
    ) -> Result<Found<B>, BoxError> {
        Ok(match judgement {
            Judgement::Keep(terms) => self.keep(answered, terms).await,
            Judgement::Validate(terms, why) => {
                // A date does not tell one variant from another, nor one user's from another's.
                let is_tagged = answered.headers.contains_key(header::ETAG);
                let is_nobodys = mode::is_nobodys(&self.errand.asked.parts.headers);
                if terms.vary.is_empty() && (is_tagged || is_nobodys) {
                    let key = Earlier::key_for_validation(&self.errand.key);
                    let whole = answered.whole(Fate::Keep(terms.windows), &terms);
                    self.shared.keep::<B>(key, &whole, |_| true).await;
                }
                return self.pass_whole(answered, why);
            }
            Judgement::Share => Found::Whole(answered.whole(Fate::Share, &Terms::NONE)),
            Judgement::Failure => Found::Whole(answered.whole(Fate::Failure, &Terms::NONE)),
            Judgement::Private(why) => return self.pass_whole(answered, why),
        })
    }

    fn pass_whole<B>(&self, answered: Answered, why: Why) -> Result<Found<B>, BoxError> {
        let Answered { status, headers, body, trailers, said, .. } = answered;
        let mut response = Response::new(CacheBody::kept(body, trailers));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        self.pass(response, why, said)
    }

    /// For whoever asked, and nobody else. An error counts as a failure instead, of which nobody is
    /// given a byte, if there is something better to be given.
    fn pass<B>(
        &self,
        response: Response<CacheBody<B>>,
        why: Why,
        said: Said,
    ) -> Result<Found<B>, BoxError> {
        let is_error = response.status().is_server_error();
        if is_error && self.earlier.will_do() && !self.errand.is_anew {
            return Err(format!("the origin answered {}", response.status()).into());
        }
        // It says nothing of the next answer, or there is one for the others.
        let is_own = is_error
            || self.earlier.will_do()
            || matches!(why, Why::Authorization | Why::RequestNoStore);
        let why = why.to_string();
        Ok(Found::Passing(Box::new(Passing { response, why, said, is_own })))
    }

    /// Keeps an answer where it belongs.
    async fn keep<B: Send + 'static>(&self, answered: Answered, terms: Terms) -> Found<B> {
        let whole = answered.whole(Fate::Keep(terms.windows), &terms);
        match &self.errand.spec {
            None if terms.vary.is_empty() => Found::Whole(whole),
            _ if self.earlier.is_private() => {
                self.errand.asked.put_own(whole);
                Found::Moved
            }
            None => Found::Spec(Arc::new(self.first_variant::<B>(&terms.vary, &whole).await)),
            Some(spec) if spec.covers(&terms.vary) => self.variant(spec, answered, whole).await,
            Some(spec) => self.other_names(spec, &terms.vary, whole).await,
        }
    }

    /// There are variants: this is kept as one of them, and what is kept for the target is how to
    /// find them.
    async fn first_variant<B: Send + 'static>(
        &self,
        names: &[HeaderName],
        whole: &Arc<Whole>,
    ) -> Spec {
        let Fate::Keep(windows) = whole.fate else { return Spec::new(names, A_MOMENT) };
        let asked = &self.errand.asked;
        let spec = Spec::new(names, windows.life());
        let key = spec.key_for(&asked.primary, &asked.parts.headers);
        let spec = spec.with_variant(&key, windows.life(), SystemTime::now()).unwrap_or(spec);
        self.shared.keep::<B>(key, whole, |_| true).await;
        asked.put_own(Arc::clone(whole));
        spec
    }

    /// One more variant, if there are not too many.
    async fn variant<B: Send + 'static>(
        &self,
        spec: &Arc<Spec>,
        answered: Answered,
        whole: Arc<Whole>,
    ) -> Found<B> {
        let Fate::Keep(windows) = whole.fate else { return Found::Whole(whole) };
        let key = &self.errand.key;
        if spec.has_for_good(key) {
            return Found::Whole(whole);
        }
        let now = SystemTime::now();
        if !spec.has_room_for(key, now) {
            return Found::Whole(answered.whole(Fate::Share, &Terms::NONE));
        }
        let primary = &self.errand.asked.primary;
        let more = |there: &Spec| there.with_variant(key, windows.life(), now);
        // That it is counted is not worth waiting for whoever is about the spec: there is a next
        // time, and whoever is about it counts one.
        self.shared.replace_spec::<B>(primary, spec, more).await;
        Found::Whole(whole)
    }

    /// The origin names fields that it did not name before.
    async fn other_names<B: Send + 'static>(
        &self,
        spec: &Spec,
        names: &[HeaderName],
        whole: Arc<Whole>,
    ) -> Found<B> {
        let all: Vec<_> = spec.names().into_iter().chain(names.iter().cloned()).collect();
        let asked = &self.errand.asked;
        let new = self.first_variant::<B>(&all, &whole).await;
        self.shared.replace_spec::<B>(&asked.primary, spec, |_| Some(new)).await;
        Found::Moved
    }
}

/// An answer of the origin that was read to its end.
pub(super) struct Answered {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) trailers: Option<HeaderMap>,
    pub(super) said: Said,
    pub(super) times: Times,
}

impl Answered {
    pub(super) fn whole(&self, fate: Fate, terms: &Terms) -> Arc<Whole> {
        let mut headers = rules::storable_headers(&self.headers);
        if !headers.contains_key(header::DATE)
            && let Ok(now) = httpdate::fmt_http_date(self.times.answered).parse()
        {
            headers.insert(header::DATE, now);
        }
        let note = Note::new(self.times.answered, terms.age, terms.freshness);
        let (body, trailers) = (self.body.clone(), self.trailers.clone());
        let response = KeptResponse { status: self.status, headers, body, trailers, note };
        Arc::new(Whole::new(response, fate, self.said))
    }
}

/// Less or more than was announced is not the response.
fn check_length(headers: &HeaderMap, length: usize) -> Result<(), BoxError> {
    let announced = headers.get(header::CONTENT_LENGTH).map(|value| value.to_str().ok());
    match announced.map(|value| value?.trim().parse::<usize>().ok()) {
        Some(announced) if announced != Some(length) => {
            Err("the content is not as long as was announced".into())
        }
        _ => Ok(()),
    }
}

/// The fields that `Vary` names. Nothing, if it cannot be told which.
fn varies_by(headers: &HeaderMap) -> Option<Vec<HeaderName>> {
    let mut names = Vec::new();
    for value in headers.get_all(header::VARY) {
        for name in value.to_str().ok()?.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            names.push(HeaderName::from_bytes(name.as_bytes()).ok().filter(|_| name != "*")?);
        }
    }
    Some(names)
}

const A_MOMENT: std::time::Duration = std::time::Duration::from_secs(1);
