//! `AnsweredFetch`: what is to be kept of an answer of the origin.

use std::sync::Arc;
use std::time::Duration;

use bellwether::{BoxError, Key};
use bellwether_body::{CacheBody, CollectedBody, Follow, Followed, KeptResponse, collect};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Response, StatusCode, header, response};
use http_body::Body;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::answered::{Answered, check_length};
use super::asked::FetchRequest;
use super::earlier::StoredResponse;
use super::kept::{CacheAnswer, CachedResponse, Disposition, OriginInfo, Passthrough, VaryIndex};
use super::mode::{self, StorageDecision, StorageTerms};
use super::rules::{Times, Why};
use super::shared::LayerState;

/// One load, once the origin has answered.
pub(super) struct AnsweredFetch<'a, ReqB> {
    pub(super) shared: &'a LayerState,
    pub(super) fetch_request: &'a FetchRequest<ReqB>,
    pub(super) earlier: &'a StoredResponse,
}

impl<ReqB> AnsweredFetch<'_, ReqB> {
    /// What is kept is still good.
    pub(super) async fn validated<B>(
        &self,
        earlier: &CachedResponse,
        headers: HeaderMap,
        times: Times,
    ) -> Result<CacheAnswer<B>, BoxError>
    where
        B: Send + 'static,
    {
        let KeptResponse { status, body, trailers, .. } = &earlier.response;
        let judgement = self.classify(*status, &headers, times);
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

    pub(super) async fn received<B>(
        &self,
        response: Response<B>,
        times: Times,
    ) -> Result<CacheAnswer<B>, BoxError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = response.into_parts();
        let said = self.said(parts.status);
        let judgement = self.classify(parts.status, &parts.headers, times);
        let until = match judgement {
            StorageDecision::Private(why) => {
                let response = Response::from_parts(parts, CacheBody::passing(body));
                return self.pass(response, why, said);
            }
            // It is for one caller: no more of it is waited for than is there.
            StorageDecision::Validate(..) => Instant::now(),
            _ if self.fetch_request.is_alone => Instant::now(),
            _ => self.shared.deadline(&self.fetch_request.asked),
        };
        let most = self.shared.client.max_entry_bytes();
        let (body, trailers) = match collect(body, most, until).await.map_err(Into::into)? {
            CollectedBody::Whole { data, trailers } => (data, trailers),
            CollectedBody::Unfinished { begun, rest, is_slow } => {
                let response = Response::from_parts(parts, CacheBody::rejoined(begun, rest));
                return self.unfinished(response, judgement, is_slow, (said, times));
            }
        };
        check_length(&parts.headers, body.len())?;
        let response::Parts { status, headers, .. } = parts;
        self.settle(Answered { status, headers, body, trailers, said, times }, judgement).await
    }

    /// For whom an answer is, and what is to become of it. Nothing else decides that, but that an
    /// answer is too large.
    fn classify(&self, status: StatusCode, headers: &HeaderMap, times: Times) -> StorageDecision {
        let request = &self.fetch_request.asked.parts.headers;
        match self.shared.mode.classify(&Method::GET, request, status, headers, times) {
            StorageDecision::Share | StorageDecision::Unconfirmed | StorageDecision::Failure
                if !self.is_for_all_who_wait(headers) =>
            {
                StorageDecision::Private(Why::Vary)
            }
            StorageDecision::Unconfirmed if status.is_server_error() && self.earlier.will_do() => {
                StorageDecision::Failure
            }
            judgement => judgement,
        }
    }

    /// What could be kept and is not here to its end: it goes through.
    fn unfinished<B: Send + 'static>(
        &self,
        response: Response<CacheBody<B>>,
        judgement: StorageDecision,
        is_slow: bool,
        (said, times): (OriginInfo, Times),
    ) -> Result<CacheAnswer<B>, BoxError> {
        match judgement {
            StorageDecision::Validate(terms, why) if is_slow => {
                let response = match self.key_to_validate(response.headers(), &terms) {
                    Some(key) => self.copied(response, key, terms, (said, times)),
                    None => response,
                };
                self.pass(response, why, said)
            }
            _ if is_slow && self.fetch_request.is_alone => {
                let follow = self.shared.follow(&self.fetch_request.asked);
                let response = response.map(|body| body.followed_by(follow));
                Ok(passing(response, Why::NotShared, said, true))
            }
            _ if is_slow => self.pass(response, Why::TooSlow, said),
            _ => self.pass(response, Why::TooLarge, said),
        }
    }

    /// Keeps a copy of what goes through, once it has.
    fn copied<B: Send + 'static>(
        &self,
        response: Response<CacheBody<B>>,
        key: Key,
        terms: StorageTerms,
        (said, times): (OriginInfo, Times),
    ) -> Response<CacheBody<B>> {
        let (shared, runtime) = (self.shared.clone(), Handle::current());
        let (status, headers) = (response.status(), response.headers().clone());
        let keep = move |followed| {
            let Followed::Complete { data: body, trailers } = followed else { return };
            if check_length(&headers, body.len()).is_ok() {
                let answered = Answered { status, headers, body, trailers, said, times };
                let whole = answered.whole(Disposition::Keep(terms.windows), &terms);
                runtime.spawn(async move { shared.keep::<B>(key, &whole, |_| true).await });
            }
        };
        let most = self.shared.client.max_entry_bytes();
        let deadline = Instant::now() + self.shared.client.load_timeout();
        response.map(|body| body.followed_by(Follow::new(most, deadline, keep).copying()))
    }

    /// Where a response that is never fresh is kept to be validated for others, if it may be. A
    /// date does not tell one variant from another, nor one user's from another's.
    fn key_to_validate(&self, headers: &HeaderMap, terms: &StorageTerms) -> Option<Key> {
        let is_tagged = headers.contains_key(header::ETAG);
        let is_nobodys = mode::is_nobodys(&self.fetch_request.asked.parts.headers);
        let is_told = terms.vary.is_empty() && (is_tagged || is_nobodys);
        is_told.then(|| StoredResponse::key_for_validation(&self.fetch_request.key))
    }

    /// Whether it varies by nothing in which the waiters of this load may differ.
    fn is_for_all_who_wait(&self, headers: &HeaderMap) -> bool {
        match (varies_by(headers), &self.fetch_request.vary_index) {
            (Some(names), Some(vary_index)) => vary_index.covers(&names),
            (Some(names), None) => names.is_empty(),
            (None, _) => false,
        }
    }

    fn said(&self, status: StatusCode) -> OriginInfo {
        OriginInfo { status: Some(status), was_stale: self.earlier.is_there() }
    }

    /// What becomes of an answer that is here to its end.
    async fn settle<B: Send + 'static>(
        &self,
        answered: Answered,
        judgement: StorageDecision,
    ) -> Result<CacheAnswer<B>, BoxError> {
        if matches!(judgement, StorageDecision::Keep(_) | StorageDecision::Share) {
            self.shared.note_shared(&self.fetch_request.asked);
        }
        Ok(match judgement {
            StorageDecision::Keep(_) if self.fetch_request.is_alone => {
                CacheAnswer::CachedResponse(answered.whole(Disposition::Share, &StorageTerms::NONE))
            }
            StorageDecision::Keep(terms) => self.keep(answered, terms).await,
            StorageDecision::Validate(terms, why) => {
                if let Some(key) = self.key_to_validate(&answered.headers, &terms) {
                    let whole = answered.whole(Disposition::Keep(terms.windows), &terms);
                    self.shared.keep::<B>(key, &whole, |_| true).await;
                }
                return self.pass_whole(answered, why);
            }
            StorageDecision::Share => {
                CacheAnswer::CachedResponse(answered.whole(Disposition::Share, &StorageTerms::NONE))
            }
            StorageDecision::Unconfirmed => CacheAnswer::CachedResponse(
                answered.whole(Disposition::Unconfirmed, &StorageTerms::NONE),
            ),
            StorageDecision::Failure => CacheAnswer::CachedResponse(
                answered.whole(Disposition::Failure, &StorageTerms::NONE),
            ),
            StorageDecision::Private(why) => return self.pass_whole(answered, why),
        })
    }

    fn pass_whole<B>(&self, answered: Answered, why: Why) -> Result<CacheAnswer<B>, BoxError> {
        let Answered { status, headers, body, trailers, said, .. } = answered;
        let mut response = Response::new(CacheBody::kept(body, trailers));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        self.pass(response, why, said)
    }

    /// For its own caller only. If there is a stale fallback, an error counts as a failure instead,
    /// and no caller is given a byte of it.
    fn pass<B>(
        &self,
        response: Response<CacheBody<B>>,
        why: Why,
        said: OriginInfo,
    ) -> Result<CacheAnswer<B>, BoxError> {
        let is_error = response.status().is_server_error();
        if is_error
            && self.earlier.will_do()
            && !self.fetch_request.is_anew
            && !self.fetch_request.is_alone
        {
            return Err(format!("the origin answered {}", response.status()).into());
        }
        let asked = &self.fetch_request.asked;
        // It says nothing of the next answer, or there was one for the others.
        let is_own = is_error
            || self.earlier.is_shared()
            || !mode::is_nobodys(&asked.parts.headers)
            || why == Why::RequestNoStore;
        self.shared.note_private(asked, response.status(), &why);
        Ok(passing(response, why, said, is_own))
    }

    /// Keeps an answer where it belongs.
    async fn keep<B: Send + 'static>(
        &self,
        answered: Answered,
        terms: StorageTerms,
    ) -> CacheAnswer<B> {
        let whole = answered.whole(Disposition::Keep(terms.windows), &terms);
        match &self.fetch_request.vary_index {
            None if terms.vary.is_empty() => CacheAnswer::CachedResponse(whole),
            None => {
                CacheAnswer::VaryIndex(Arc::new(self.first_variant::<B>(&terms.vary, &whole).await))
            }
            Some(vary_index) if vary_index.covers(&terms.vary) => {
                self.note_variant(vary_index, &self.fetch_request.key, &whole).await;
                CacheAnswer::CachedResponse(whole)
            }
            Some(vary_index) => self.other_names(vary_index, &terms.vary, whole).await,
        }
    }

    /// There are variants: this is kept as one of them, and what is kept for the target is how to
    /// find them.
    async fn first_variant<B: Send + 'static>(
        &self,
        names: &[HeaderName],
        whole: &Arc<CachedResponse>,
    ) -> VaryIndex {
        let Disposition::Keep(windows) = whole.disposition else {
            return VaryIndex::new(names, A_MOMENT);
        };
        let asked = &self.fetch_request.asked;
        let vary_index = VaryIndex::new(names, windows.life());
        let key = vary_index.key_for(&asked.primary, &asked.parts.headers);
        self.note_variant(&vary_index, &key, whole).await;
        self.shared.keep::<B>(key, whole, |_| true).await;
        asked.put_own(Arc::clone(whole));
        vary_index
    }

    /// Notes that there is a variant, and removes the one that makes room for it.
    async fn note_variant(&self, vary_index: &VaryIndex, key: &Key, whole: &CachedResponse) {
        let Disposition::Keep(windows) = whole.disposition else { return };
        let primary = &self.fetch_request.asked.primary;
        if let Some(gone) = self.shared.variants.add(vary_index, primary, key, windows.life()) {
            self.shared.client.remove_unless_loading(gone).await;
        }
    }

    /// The origin names fields that it did not name before.
    async fn other_names<B: Send + 'static>(
        &self,
        vary_index: &VaryIndex,
        names: &[HeaderName],
        whole: Arc<CachedResponse>,
    ) -> CacheAnswer<B> {
        let all: Vec<_> = vary_index.names().into_iter().chain(names.iter().cloned()).collect();
        let asked = &self.fetch_request.asked;
        let new = self.first_variant::<B>(&all, &whole).await;
        self.shared.replace_vary_index::<B>(&asked.primary, vary_index, new).await;
        CacheAnswer::Retry
    }
}

fn passing<B>(
    response: Response<CacheBody<B>>,
    why: Why,
    said: OriginInfo,
    is_own: bool,
) -> CacheAnswer<B> {
    CacheAnswer::Passthrough(Box::new(Passthrough { response, why: why.to_string(), said, is_own }))
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

const A_MOMENT: Duration = Duration::from_secs(1);
