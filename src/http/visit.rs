//! `Visit`: one request that asks for what is kept, and which key it asks next.

use std::sync::Arc;

use http::Response;
use http::request::Parts;
use tower::BoxError;

use super::asked::{Asked, Errand};
use super::fetch::Fetch;
use super::kept::{Found, Spec, Whole};
use super::report::{Asking, Report, seconds};
use super::rules::Demand;
use super::shared::Shared;
use super::{answer, mode, refusal};
use crate::error::Error;
use crate::key::Key;
use crate::read_through::How;
use crate::response::CacheBody;
use crate::status::{CacheStatus, Stale};

/// One request that asks for what is kept.
#[derive(Clone, Debug)]
pub(super) struct Visit<S> {
    pub(super) fetch: Fetch<S>,
    pub(super) asked: Arc<Asked>,
    /// By what it selects a variant, while it asks for one.
    spec: Option<Arc<Spec>>,
    /// What was kept did not do.
    is_anew: bool,
    /// How many times it may ask.
    left: u8,
}

/// What comes after an answer.
pub(super) enum Next<ReqB, B> {
    Answer(Response<CacheBody<B>>),
    Ask(Errand<ReqB>, How),
    /// To the origin, since the answer that it waited for was for one caller only.
    Alone,
    /// To the origin, and nothing of it is kept.
    Around,
}

impl<S> Visit<S> {
    pub(super) fn new(fetch: Fetch<S>, asked: Asked) -> Self {
        Self { fetch, asked: Arc::new(asked), spec: None, is_anew: false, left: ROUNDS }
    }

    /// What it asks for now.
    pub(super) fn errand<ReqB>(&self) -> (Errand<ReqB>, How) {
        let mut errand = match &self.spec {
            None => Errand::primary(&self.asked),
            Some(spec) => Errand::variant(&self.asked, Arc::clone(spec)),
        };
        errand.is_anew = self.is_anew;
        // A request with credentials may be one of many whose answers are their own.
        let asks_again = mode::is_nobodys(&self.asked.parts.headers);
        let how =
            How { is_forced: self.is_anew, asks_again, bypasses_by_itself: true, ..How::default() };
        (errand, how)
    }

    /// After an answer of the core.
    pub(super) fn answered<ReqB, B>(
        &mut self,
        answer: Result<Found<B>, Error<BoxError>>,
        status: &CacheStatus,
    ) -> Next<ReqB, B> {
        match answer {
            Err(_) if matches!(status, CacheStatus::Bypass(_)) => Next::Alone,
            Err(error) => Next::Answer(refusal::of(&error)),
            Ok(Found::Whole(whole))
                if self.is_anew || will_do(&self.asked.demand, &whole, status) =>
            {
                self.note_use(status);
                self.give(&whole, status)
            }
            Ok(Found::Whole(_)) => {
                self.is_anew = true;
                self.again()
            }
            Ok(Found::Passing(passing)) => {
                let (said, why) = (passing.said, passing.why);
                let report = Report::not_kept(self.asking(), status, said, why);
                Next::Answer(answer::passed(passing.response, &self.asked.parts, &report))
            }
            Ok(Found::Spec(spec)) => match self.asked.take_own() {
                Some(own) => self.give(&own, status),
                // A spec is found under a target, never under a variant.
                None if self.spec.is_some() => Next::Around,
                None => {
                    self.spec = Some(spec);
                    self.is_anew = false;
                    self.again()
                }
            },
            Ok(Found::Moved) => match self.asked.take_own() {
                Some(own) => self.give(&own, status),
                None => {
                    self.spec = None;
                    self.again()
                }
            },
        }
    }

    fn again<ReqB, B>(&mut self) -> Next<ReqB, B> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return Next::Around;
        }
        let (errand, how) = self.errand();
        Next::Ask(errand, how)
    }

    /// Notes that a variant was given out that was kept.
    fn note_use(&self, status: &CacheStatus) {
        if let (Some(spec), CacheStatus::Hit { .. } | CacheStatus::Stale { .. }) =
            (&self.spec, status)
        {
            let Asked { primary, parts, .. } = &*self.asked;
            self.fetch.shared.variants.touch(primary, &spec.key_for(primary, &parts.headers));
        }
    }

    fn give<ReqB, B>(&self, whole: &Whole, status: &CacheStatus) -> Next<ReqB, B> {
        Next::Answer(give(self.asking(), &self.asked.parts, whole, status))
    }

    fn asking(&self) -> Asking {
        match &self.spec {
            _ if self.is_anew => Asking::Anew,
            None => Asking::Target,
            Some(_) => Asking::Variant,
        }
    }
}

/// The answer to a request, if it is at hand: nothing is made ready to ask for it.
pub(super) fn at_hand<B: Send + 'static>(
    shared: &Shared,
    parts: &Parts,
    primary: &Key,
    demand: &Demand,
) -> Option<Response<CacheBody<B>>> {
    let (found, status) = shared.within.at_hand::<Found<B>>(primary)?;
    let (whole, status, asking) = match found {
        Found::Whole(whole) => (whole, status, Asking::Target),
        Found::Spec(spec) => {
            let key = spec.key_for(primary, &parts.headers);
            match shared.within.at_hand::<Found<B>>(&key)? {
                (Found::Whole(whole), status) => {
                    shared.variants.touch(primary, &key);
                    (whole, status, Asking::Variant)
                }
                _ => return None,
            }
        }
        Found::Passing(_) | Found::Moved => return None,
    };
    will_do(demand, &whole, &status).then(|| give(asking, parts, &whole, &status))
}

/// Whether an answer is one that a request will have. What was loaded for it is.
fn will_do(demand: &Demand, whole: &Whole, status: &CacheStatus) -> bool {
    let is_kept = match status {
        CacheStatus::Hit { .. } => true,
        CacheStatus::Stale { why, .. } => *why == Stale::Revalidating,
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
    asking: Asking,
    request: &Parts,
    whole: &Whole,
    status: &CacheStatus,
) -> Response<CacheBody<B>> {
    let report = Report::of(asking, status, whole.said);
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

/// How many times a request asks at most: for its target, for a variant, for each of them anew,
/// and once more if it has moved meanwhile. Whom even that does not help, the origin helps.
const ROUNDS: u8 = 6;
