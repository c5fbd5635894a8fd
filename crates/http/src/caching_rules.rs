//! `Rules`: by which rules a layer decides what is stored.

use std::time::Duration;

use bellwether::codec::Cacheability;
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};

use super::codec::shared;
use super::request_key::RequestKey;
use super::rules::{self, Consent, Defaults, Demand, PrivateReason, Storing, Terms, Times};
use super::target::normalize_host;

/// The rules of RFC 9111: a response states how long it is fresh, and whether it may be shared.
#[allow(clippy::exhaustive_enums, reason = "it has no values")]
#[derive(Clone, Copy, Debug)]
pub enum Rfc9111Rules {}

/// The rules of the program: it states the key and the lifetimes of responses.
#[allow(clippy::exhaustive_enums, reason = "it has no values")]
#[derive(Clone, Copy, Debug)]
pub enum KeyedRules {}

/// By which rules the layer decides what is stored.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    /// What holds unless a response states it. With a key of the program, no response does.
    pub(super) defaults: Defaults,
    /// The key, if the program makes it.
    pub(super) key: Option<RequestKey>,
    /// How long a 404 or 410 is fresh, with a key of the program.
    pub(super) not_found_ttl: Duration,
}

impl Rules {
    /// What a request demands of a stored response.
    pub(super) fn demand(&self, request: &HeaderMap) -> Demand {
        match self.key {
            None => Demand::of(request, &self.defaults),
            // The program decides, so `Cache-Control` of the request is ignored.
            Some(_) => Demand::default(),
        }
    }

    /// Writes a request as its key has it.
    pub(super) fn normalize(&self, parts: &mut Parts) {
        normalize_host(parts);
        rules::in_one_form(&mut parts.headers);
        self.key.iter().for_each(|key| key.normalize(parts));
    }

    /// Decides whether a response to GET is stored, by its header fields and those of its request.
    pub(super) fn classify(
        &self,
        request: &HeaderMap,
        status: StatusCode,
        response: &HeaderMap,
        times: Times,
    ) -> Storing {
        if let Some(key) = &self.key {
            return self.classify_keyed(key, status, response, times);
        }
        match rules::storing(request, status, response, times, &self.defaults) {
            Storing::Private(why)
                if is_error(status, why) && !self.defaults.credentials.are_in(request) =>
            {
                Storing::Share(Cacheability::Unconfirmed)
            }
            storing => storing,
        }
    }

    /// With the lifetimes of the program in place of those of the response. Credentials are part of the
    /// key, or the program has said that they do not matter.
    fn classify_keyed(
        &self,
        key: &RequestKey,
        status: StatusCode,
        response: &HeaderMap,
        times: Times,
    ) -> Storing {
        let vary = match rules::for_others(status, response, &self.defaults.credentials) {
            Ok(vary) => vary,
            Err(PrivateReason::ErrorStatus) => return Storing::Share(Cacheability::Unconfirmed),
            Err(why) => return Storing::Private(why),
        };
        // No variant of a key without the host is that of a host: over HTTP/2 there is no such field.
        if vary.contains(&header::HOST) && !key.has_host {
            return Storing::Private(PrivateReason::Vary);
        }
        if status.is_server_error() {
            return Storing::Share(Cacheability::Failure);
        }
        if rules::must_be_validated(response) {
            return Storing::Private(PrivateReason::NoCache);
        }
        let ttl = match status {
            StatusCode::NOT_FOUND | StatusCode::GONE => self.not_found_ttl,
            _ if status.is_success() => self.defaults.ttl.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        if !ttl.is_zero() {
            let age = rules::on_arrival(response, times);
            let terms = Terms::new(ttl, age, self.defaults.stale, Consent::Public);
            return Storing::Keep(Terms { vary, ..terms });
        }
        let is_error = status.is_client_error();
        Storing::Share(if is_error { Cacheability::Unconfirmed } else { shared() })
    }
}

/// Whether a response is an error that nothing but its status or its missing lifetime makes private.
fn is_error(status: StatusCode, why: PrivateReason) -> bool {
    why == PrivateReason::ErrorStatus || why == PrivateReason::NotFresh && status.is_server_error()
}
