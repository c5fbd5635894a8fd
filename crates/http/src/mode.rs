//! `Mode`: by which rules responses are judged.

use std::time::Duration;

use bellwether::Lifetimes;
use http::{HeaderMap, HeaderName, Method, StatusCode, header};

use super::request_key::RequestKey;
use super::rules::{self, Consent, Defaults, Demand, Storing, Times, Why};

/// By which rules responses are judged.
#[derive(Debug)]
pub(super) enum Mode {
    /// Those of RFC 9111: the origin says how long.
    Stated(Defaults),
    /// Those of the program: it says under which key, and how long.
    Keyed(ProgramRules),
}

/// What the program says.
#[derive(Clone, Debug)]
pub(super) struct ProgramRules {
    pub(super) key: RequestKey,
    pub(super) ttl: Duration,
    pub(super) not_found_ttl: Duration,
    pub(super) while_revalidate: Duration,
    pub(super) if_error: Duration,
}

/// For whom a response is, and what is to become of it.
#[derive(Debug)]
pub(super) enum StorageDecision {
    /// It is for all, and kept.
    Keep(StorageTerms),
    /// It is for its own caller. It is kept so that the origin can be asked whether others may have it.
    Validate(StorageTerms, Why),
    /// The waiters are given it, and it is not kept.
    Share,
    /// It may be the fault of this request: it is given to its own caller, and the waiters ask the
    /// origin again, by a request of one of them. Whatever that gives is for all of them.
    Unconfirmed,
    /// The same, and it counts as a failure: if there is something better, that is given instead,
    /// and a second one is shared with later callers for a while.
    Failure,
    /// It is for its own caller. An error is not given at all if there is a stale fallback.
    Private(Why),
}

/// On which terms a response is kept.
#[derive(Clone, Debug)]
pub(super) struct StorageTerms {
    pub(super) windows: Lifetimes,
    /// How old it was when it came.
    pub(super) age: Duration,
    /// How long it is fresh from then on.
    pub(super) freshness: Duration,
    pub(super) vary: Vec<HeaderName>,
    pub(super) consent: Consent,
}

impl StorageTerms {
    /// Of what is not kept, and is for all waiters.
    pub(super) const NONE: Self = Self {
        windows: Lifetimes::NONE,
        age: Duration::ZERO,
        freshness: Duration::ZERO,
        vary: Vec::new(),
        consent: Consent::Public,
    };
}

impl Mode {
    /// What a request says about the answers that will do.
    pub(super) fn demand(&self, request: &HeaderMap) -> Demand {
        match self {
            Self::Stated(defaults) => Demand::of(request, defaults.needs_public),
            // What is kept is the program's choice, so what the caller would rather have is not
            // heard.
            Self::Keyed(_) => Demand::default(),
        }
    }

    /// What is to become of a response, by what it says and by what was asked.
    pub(super) fn classify(
        &self,
        method: &Method,
        request: &HeaderMap,
        status: StatusCode,
        response: &HeaderMap,
        times: Times,
    ) -> StorageDecision {
        match self {
            Self::Stated(defaults) => {
                match rules::storing(method, request, status, response, times, defaults) {
                    Storing::Keep(terms) => StorageDecision::Keep(terms.into()),
                    Storing::Validate(terms, why) => StorageDecision::Validate(terms.into(), why),
                    Storing::Private(Why::NotFresh)
                        if status.is_server_error() && is_nobodys(request) =>
                    {
                        StorageDecision::Unconfirmed
                    }
                    Storing::Private(why) => StorageDecision::Private(why),
                }
            }
            Self::Keyed(keyed) => keyed.classify(method, request, status, response, times),
        }
    }
}

/// Whether a request carries no credentials.
pub(super) fn is_nobodys(request: &HeaderMap) -> bool {
    ![header::AUTHORIZATION, header::COOKIE].iter().any(|name| request.contains_key(name))
}

impl ProgramRules {
    /// How long is for the program to say, and not for the response.
    fn classify(
        &self,
        method: &Method,
        request: &HeaderMap,
        status: StatusCode,
        response: &HeaderMap,
        times: Times,
    ) -> StorageDecision {
        // Whose request it is, is part of the key or was said not to matter.
        let mut request = request.clone();
        request.remove(header::AUTHORIZATION);
        request.remove(header::COOKIE);
        let vary = match rules::for_others(method, &request, status, response) {
            Ok(vary) => vary,
            Err(why) => return StorageDecision::Private(why),
        };
        if status.is_server_error() {
            return StorageDecision::Failure;
        }
        if rules::must_be_validated(response) {
            return StorageDecision::Private(Why::NoCache);
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
        let windows = Lifetimes::fresh_for(ttl)
            .stale_while_revalidate(self.while_revalidate)
            .stale_if_error(self.if_error);
        let age = rules::on_arrival(response, times);
        StorageDecision::Keep(StorageTerms {
            windows,
            age,
            freshness: ttl,
            vary,
            consent: Consent::Public,
        })
    }
}

impl From<rules::Terms> for StorageTerms {
    fn from(terms: rules::Terms) -> Self {
        let windows = Lifetimes::fresh_for(terms.freshness)
            .stale_while_revalidate(terms.while_revalidate)
            .stale_if_error(terms.if_error)
            .kept_for_validation(terms.for_validation);
        let rules::Terms { age, freshness, vary, consent, .. } = terms;
        Self { windows, age, freshness, vary, consent }
    }
}
