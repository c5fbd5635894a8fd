//! `Exchange`: one request that asks for what is kept, and which key it asks next.

use std::sync::Arc;

use bellwether::BoxError;
use bellwether::adapter::RequestOptions;
use bellwether::{CacheStatus, Error, Key, StaleReason};
use bellwether_body::CacheBody;
use http::Response;
use http::request::Parts;

use super::asked::{CacheRequest, FetchRequest};
use super::fetch::OriginFetch;
use super::kept::{CacheAnswer, CachedResponse, VaryIndex};
use super::report::{LookupKind, Report, seconds};
use super::rules::Demand;
use super::shared::LayerState;
use super::{answer, mode, refusal};

/// One request that asks for what is kept.
#[derive(Clone, Debug)]
pub(super) struct Exchange<S> {
    pub(super) fetch: OriginFetch<S>,
    pub(super) asked: Arc<CacheRequest>,
    /// By what it selects a variant, while it asks for one.
    vary_index: Option<Arc<VaryIndex>>,
    /// What was kept did not do.
    is_anew: bool,
    /// How many times it may ask.
    left: u8,
}

/// What comes after an answer.
pub(super) enum NextStep<ReqB, B> {
    Answer(Response<CacheBody<B>>),
    Ask(FetchRequest<ReqB>, RequestOptions),
    /// To the origin, since the answer that it waited for was for one caller only.
    Alone,
    /// To the origin, and nothing of it is kept.
    Around,
}

impl<S> Exchange<S> {
    pub(super) fn new(fetch: OriginFetch<S>, asked: CacheRequest) -> Self {
        Self { fetch, asked: Arc::new(asked), vary_index: None, is_anew: false, left: ROUNDS }
    }

    /// What it asks for now.
    pub(super) fn fetch_request<ReqB>(&self) -> (FetchRequest<ReqB>, RequestOptions) {
        let mut fetch_request = match &self.vary_index {
            None => FetchRequest::primary(&self.asked),
            Some(vary_index) => FetchRequest::variant(&self.asked, Arc::clone(vary_index)),
        };
        fetch_request.is_anew = self.is_anew;
        // A request with credentials may be one of many whose answers are their own.
        let asks_again = mode::is_nobodys(&self.asked.parts.headers);
        let how = RequestOptions::default()
            .force_refresh(self.is_anew)
            .retry_private(asks_again)
            .return_bypass();
        (fetch_request, how)
    }

    /// After an answer of the core.
    pub(super) fn answered<ReqB, B>(
        &mut self,
        answer: Result<CacheAnswer<B>, Error<BoxError>>,
        status: &CacheStatus,
    ) -> NextStep<ReqB, B> {
        match answer {
            Err(_) if matches!(status, CacheStatus::Bypass(_)) => NextStep::Alone,
            Err(error) => NextStep::Answer(refusal::of(&error)),
            Ok(CacheAnswer::CachedResponse(whole))
                if self.is_anew || will_do(&self.asked.demand, &whole, status) =>
            {
                self.note_use(status);
                self.give(&whole, status)
            }
            Ok(CacheAnswer::CachedResponse(_)) => {
                self.is_anew = true;
                self.again()
            }
            Ok(CacheAnswer::Passthrough(passing)) => {
                let (said, why) = (passing.said, passing.why);
                let report = Report::not_kept(self.lookup(), status, said, why);
                NextStep::Answer(answer::passed(passing.response, &self.asked.parts, &report))
            }
            Ok(CacheAnswer::VaryIndex(vary_index)) => match self.asked.take_own() {
                Some(own) => self.give(&own, status),
                // A `Vary` index is found under a target, never under a variant.
                None if self.vary_index.is_some() => NextStep::Around,
                None => {
                    self.vary_index = Some(vary_index);
                    self.is_anew = false;
                    self.again()
                }
            },
            Ok(CacheAnswer::Retry) => match self.asked.take_own() {
                Some(own) => self.give(&own, status),
                None => {
                    self.vary_index = None;
                    self.again()
                }
            },
        }
    }

    fn again<ReqB, B>(&mut self) -> NextStep<ReqB, B> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return NextStep::Around;
        }
        let (fetch_request, how) = self.fetch_request();
        NextStep::Ask(fetch_request, how)
    }

    /// Notes that a variant was given out that was kept.
    fn note_use(&self, status: &CacheStatus) {
        if let (Some(vary_index), CacheStatus::Hit { .. } | CacheStatus::Stale { .. }) =
            (&self.vary_index, status)
        {
            let CacheRequest { primary, parts, .. } = &*self.asked;
            self.fetch.shared.variants.touch(primary, &vary_index.key_for(primary, &parts.headers));
        }
    }

    fn give<ReqB, B>(&self, whole: &CachedResponse, status: &CacheStatus) -> NextStep<ReqB, B> {
        NextStep::Answer(give(self.lookup(), &self.asked.parts, whole, status))
    }

    fn lookup(&self) -> LookupKind {
        match &self.vary_index {
            _ if self.is_anew => LookupKind::Refetch,
            None => LookupKind::Target,
            Some(_) => LookupKind::Variant,
        }
    }
}

/// The answer to a request, if it is at hand: nothing is made ready to ask for it.
pub(super) fn at_hand<B: Send + 'static>(
    shared: &LayerState,
    parts: &Parts,
    primary: &Key,
    demand: &Demand,
) -> Option<Response<CacheBody<B>>> {
    let (found, status) = shared.client.cached::<CacheAnswer<B>>(primary)?;
    let (whole, status, lookup) = match found {
        CacheAnswer::CachedResponse(whole) => (whole, status, LookupKind::Target),
        CacheAnswer::VaryIndex(vary_index) => {
            let key = vary_index.key_for(primary, &parts.headers);
            match shared.client.cached::<CacheAnswer<B>>(&key)? {
                (CacheAnswer::CachedResponse(whole), status) => {
                    shared.variants.touch(primary, &key);
                    (whole, status, LookupKind::Variant)
                }
                _ => return None,
            }
        }
        CacheAnswer::Passthrough(_) | CacheAnswer::Retry => return None,
    };
    will_do(demand, &whole, &status).then(|| give(lookup, parts, &whole, &status))
}

/// Whether an answer is one that a request will have. What was loaded for it is.
fn will_do(demand: &Demand, whole: &CachedResponse, status: &CacheStatus) -> bool {
    let is_kept = match status {
        CacheStatus::Hit { .. } => true,
        CacheStatus::Stale { why, .. } => *why == StaleReason::Revalidating,
        _ => false,
    };
    let fresh_for = match status {
        CacheStatus::Hit { fresh_for } => whole.fresh_for(*fresh_for),
        _ => None,
    };
    let is_own = matches!(status, CacheStatus::Led { .. });
    if !is_own && !demand.may_share(whole.response.note.consent) {
        return false;
    }
    // Few ask for anything, and clocks take time.
    !is_kept || *demand == Demand::default() || demand.accepts(whole.response.note.age(), fresh_for)
}

fn give<B>(
    lookup: LookupKind,
    request: &Parts,
    whole: &CachedResponse,
    status: &CacheStatus,
) -> Response<CacheBody<B>> {
    let report = Report::of(lookup, status, whole.said);
    let report = match status {
        CacheStatus::Stale { stale_for, .. } => report.ttl(-seconds(*stale_for)),
        CacheStatus::Hit { fresh_for } => {
            report.ttl(whole.fresh_for(*fresh_for).map_or(0, seconds))
        }
        _ => match whole.response.note.fresh_for() {
            Some(left) => report.ttl(seconds(left)),
            None => report,
        },
    };
    answer::answer(whole, request, &report)
}

/// How many times a request asks at most: for its target, for a variant, for each of them again,
/// and once more if it has moved meanwhile. A request that is not answered by then goes to the origin.
const ROUNDS: u8 = 6;
