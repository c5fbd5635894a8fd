//! `Mode`: by which rules the layer decides what is stored.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};

use super::request_key::RequestKey;
use super::rules::{
    self, Consent, Credentials, Defaults, Demand, PrivateReason, StaleWindows, Storing, Terms,
    Times,
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
    ) -> Storing {
        match self {
            Self::Stated(defaults) => {
                match rules::storing(request, status, response, times, defaults) {
                    Storing::Private(PrivateReason::NotFresh)
                        if status.is_server_error() && !defaults.credentials.are_in(request) =>
                    {
                        Storing::Unconfirmed
                    }
                    storing => storing,
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
    ) -> Storing {
        let credentials = &self.credentials;
        let vary = match rules::for_others(request, status, response, credentials) {
            Ok(vary) => vary,
            Err(why) => return Storing::Private(why),
        };
        // No variant of a key without the host is that of a host: over HTTP/2 there is no such field.
        if vary.contains(&header::HOST) && !self.key.has_host() {
            return Storing::Private(PrivateReason::Vary);
        }
        if status.is_server_error() {
            return Storing::Failure;
        }
        if rules::must_be_validated(response) {
            return Storing::Private(PrivateReason::NoCache);
        }
        let ttl = match status {
            StatusCode::NOT_FOUND | StatusCode::GONE => self.not_found_ttl,
            _ if status.is_success() => self.ttl,
            _ => Duration::ZERO,
        };
        if status.is_client_error() && ttl.is_zero() {
            return Storing::Unconfirmed;
        }
        if ttl.is_zero() {
            return Storing::Share;
        }
        let age = rules::on_arrival(response, times);
        Storing::Keep(Terms { vary, ..Terms::new(ttl, age, self.stale, Consent::Public) })
    }
}
