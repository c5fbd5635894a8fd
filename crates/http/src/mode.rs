//! `Mode`: by which rules the layer decides what is stored.

use std::time::Duration;

use bellwether::Lifetimes;
use http::{HeaderMap, HeaderName, StatusCode, header};

use super::request_key::RequestKey;
use super::rules::{
    self, Consent, Credentials, Defaults, Demand, PrivateReason, StaleWindows, Storing, Times,
};

/// By which rules the layer decides what is stored.
#[derive(Debug)]
pub(super) enum Mode {
    /// Those of RFC 9111: the response states its freshness lifetime.
    Stated(Defaults),
    /// Those of the program: it states the key and the lifetimes.
    Keyed(ProgramRules),
}

/// The key and the lifetimes that the program states.
#[derive(Clone, Debug)]
pub(super) struct ProgramRules {
    pub(super) key: RequestKey,
    pub(super) credentials: Credentials,
    pub(super) ttl: Duration,
    pub(super) not_found_ttl: Duration,
    pub(super) stale: StaleWindows,
}

/// Whether a response is stored, and which callers get it.
#[derive(Debug)]
pub(super) enum StorageDecision {
    /// It is stored, and all waiters get it.
    Keep(StorageTerms),
    /// Only its own caller gets it. It is stored for validation: other callers get it only after
    /// the origin has confirmed it.
    Validate(StorageTerms, PrivateReason),
    /// All waiters get it, and it is not stored.
    Share,
    /// An error that this request may have caused. Its own caller gets it. The waiters ask the
    /// origin once more, with the request of one of them. After a second such error, a few of them ask
    /// for themselves, and so do all with credentials.
    Unconfirmed,
    /// As `Unconfirmed`, and it counts as a failure. If there is a stale fallback, that is served
    /// instead. Later callers share a second failure for a while.
    Failure,
    /// Only its own caller gets it. An error is replaced by the stale fallback, if there is one.
    Private(PrivateReason),
}

/// For how long a response is stored, and for which requests.
#[derive(Clone, Debug)]
pub(super) struct StorageTerms {
    pub(super) lifetimes: Lifetimes,
    /// How long it is served stale. That in `lifetimes` may be longer, for an origin that gives no answer.
    pub(super) stale: StaleWindows,
    /// Its age on arrival.
    pub(super) age: Duration,
    /// How long it is fresh, counted from its arrival.
    pub(super) freshness: Duration,
    pub(super) vary: Vec<HeaderName>,
    pub(super) consent: Consent,
}

impl StorageTerms {
    /// The terms of a response that is shared with the waiters and not stored.
    pub(super) const NONE: Self = Self {
        lifetimes: Lifetimes::NONE,
        stale: StaleWindows::NONE,
        age: Duration::ZERO,
        freshness: Duration::ZERO,
        vary: Vec::new(),
        consent: Consent::Public,
    };
}

impl Mode {
    /// What a request demands of a stored response.
    pub(super) fn demand(&self, request: &HeaderMap) -> Demand {
        match self {
            Self::Stated(defaults) => Demand::of(request, defaults),
            // The program decides, so `Cache-Control` of the request is ignored.
            Self::Keyed(_) => Demand::default(),
        }
    }

    /// Which request header fields are credentials.
    pub(super) fn credentials(&self) -> &Credentials {
        match self {
            Self::Stated(defaults) => &defaults.credentials,
            Self::Keyed(keyed) => &keyed.credentials,
        }
    }

    /// Decides whether a response to GET is stored, by its header fields and those of its request.
    pub(super) fn classify(
        &self,
        request: &HeaderMap,
        status: StatusCode,
        response: &HeaderMap,
        times: Times,
    ) -> StorageDecision {
        match self {
            Self::Stated(defaults) => {
                match rules::storing(request, status, response, times, defaults) {
                    Storing::Keep(terms) => StorageDecision::Keep(terms.into()),
                    Storing::Validate(terms, why) => StorageDecision::Validate(terms.into(), why),
                    Storing::Private(PrivateReason::NotFresh)
                        if status.is_server_error() && !defaults.credentials.are_in(request) =>
                    {
                        StorageDecision::Unconfirmed
                    }
                    Storing::Private(why) => StorageDecision::Private(why),
                }
            }
            Self::Keyed(keyed) => keyed.classify(request, status, response, times),
        }
    }
}

impl ProgramRules {
    /// As `Mode::classify`, with the lifetimes of the program in place of those of the response.
    /// Credentials are part of the key, or the program has said that they do not matter.
    fn classify(
        &self,
        request: &HeaderMap,
        status: StatusCode,
        response: &HeaderMap,
        times: Times,
    ) -> StorageDecision {
        let credentials = &self.credentials;
        let vary = match rules::for_others(request, status, response, credentials) {
            Ok(vary) => vary,
            Err(why) => return StorageDecision::Private(why),
        };
        // No variant of a key without the host is that of a host: over HTTP/2 there is no such field.
        if vary.contains(&header::HOST) && !self.key.has_host() {
            return StorageDecision::Private(PrivateReason::Vary);
        }
        if status.is_server_error() {
            return StorageDecision::Failure;
        }
        if rules::must_be_validated(response) {
            return StorageDecision::Private(PrivateReason::NoCache);
        }
        let ttl = match status {
            StatusCode::NOT_FOUND | StatusCode::GONE => self.not_found_ttl,
            _ if status.is_success() => self.ttl,
            _ => Duration::ZERO,
        };
        if status.is_client_error() && ttl.is_zero() {
            return StorageDecision::Unconfirmed;
        }
        if ttl.is_zero() {
            return StorageDecision::Share;
        }
        let lifetimes = lifetimes(ttl, self.stale);
        let age = rules::on_arrival(response, times);
        StorageDecision::Keep(StorageTerms {
            lifetimes,
            stale: self.stale,
            age,
            freshness: ttl,
            vary,
            consent: Consent::Public,
        })
    }
}

fn lifetimes(ttl: Duration, stale: StaleWindows) -> Lifetimes {
    Lifetimes::fresh_for(ttl)
        .stale_while_revalidate(stale.while_revalidate)
        .stale_if_error(stale.if_error.max(stale.if_disconnected))
}

impl From<rules::Terms> for StorageTerms {
    fn from(terms: rules::Terms) -> Self {
        let lifetimes =
            lifetimes(terms.freshness, terms.stale).kept_for_validation(terms.for_validation);
        let rules::Terms { age, freshness, stale, vary, consent, .. } = terms;
        Self { lifetimes, stale, age, freshness, vary, consent }
    }
}
