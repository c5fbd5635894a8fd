//! `Mode`: by which rules responses are judged.

use std::time::Duration;

use http::{HeaderMap, HeaderName, Method, StatusCode, header};

use super::request_key::RequestKey;
use super::rules::{self, Defaults, Storing, Times, Why};
use crate::store::Windows;

/// By which rules responses are judged.
#[derive(Debug)]
pub(super) enum Mode {
    /// Those of RFC 9111: the origin says how long.
    Stated(Defaults),
    /// Those of the program: it says under which key, and how long.
    Keyed(Keyed),
}

/// What the program says.
#[derive(Clone, Debug)]
pub(super) struct Keyed {
    pub(super) key: RequestKey,
    pub(super) ttl: Duration,
    pub(super) not_found_ttl: Duration,
    pub(super) while_revalidate: Duration,
    pub(super) if_error: Duration,
}

/// What is to become of a response.
#[derive(Debug)]
pub(super) enum Judgement {
    Keep(Terms),
    /// It is given to those who wait for it, and not kept.
    Share,
    /// It counts as a failure.
    Failure,
    /// It is for whoever asked.
    Private(Why),
}

/// On which terms a response is kept.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) windows: Windows,
    /// How old it was when it came.
    pub(super) age: Duration,
    /// How long it is fresh from then on.
    pub(super) freshness: Duration,
    pub(super) vary: Vec<HeaderName>,
    /// It may be given to nobody without asking the origin.
    pub(super) always_validate: bool,
}

impl Terms {
    /// Of what is not kept.
    pub(super) const NONE: Self = Self {
        windows: Windows::NONE,
        age: Duration::ZERO,
        freshness: Duration::ZERO,
        vary: Vec::new(),
        always_validate: false,
    };
}

impl Mode {
    /// What is to become of a response. `is_spared` if there is an answer that is better than a
    /// failure.
    pub(super) fn judge(
        &self,
        method: &Method,
        request: &HeaderMap,
        status: StatusCode,
        response: &HeaderMap,
        times: Times,
        is_spared: bool,
    ) -> Judgement {
        match self {
            Self::Stated(defaults) => {
                match rules::storing(method, request, status, response, times, defaults) {
                    Storing::Keep(terms) => Judgement::Keep(terms.into()),
                    Storing::Private(_) if status.is_server_error() && is_spared => {
                        Judgement::Failure
                    }
                    Storing::Private(Why::NotFresh) if status.is_server_error() => Judgement::Share,
                    Storing::Private(why) => Judgement::Private(why),
                }
            }
            Self::Keyed(keyed) => keyed.judge(method, request, status, response, times),
        }
    }
}

impl Keyed {
    fn judge(
        &self,
        method: &Method,
        request: &HeaderMap,
        status: StatusCode,
        response: &HeaderMap,
        times: Times,
    ) -> Judgement {
        // Whose request it is, is part of the key or was said not to matter.
        let mut request = request.clone();
        request.remove(header::AUTHORIZATION);
        let defaults = Defaults {
            ttl: Some(self.ttl),
            while_revalidate: self.while_revalidate,
            if_error: self.if_error,
        };
        // A failure says nothing about for whom it is that would matter: it is not kept.
        let judged_as = if status.is_server_error() { StatusCode::OK } else { status };
        match rules::storing(method, &request, judged_as, response, times, &defaults) {
            Storing::Private(why) if !matches!(why, Why::NotFresh) => Judgement::Private(why),
            _ if status.is_server_error() => Judgement::Failure,
            Storing::Keep(terms) if terms.always_validate => Judgement::Private(Why::NoStore),
            Storing::Keep(terms) => self.keep(status, terms),
            Storing::Private(_) => Judgement::Share,
        }
    }

    /// How long is for the program to say, and not for the response.
    fn keep(&self, status: StatusCode, terms: rules::Terms) -> Judgement {
        let ttl = match status {
            StatusCode::NOT_FOUND | StatusCode::GONE => self.not_found_ttl,
            _ if status.is_success() => self.ttl,
            _ => Duration::ZERO,
        };
        if ttl.is_zero() {
            return Judgement::Share;
        }
        let windows = Windows::fresh_for(ttl)
            .stale_while_revalidate(self.while_revalidate)
            .stale_if_error(self.if_error);
        let terms = Terms { windows, freshness: ttl, ..terms.into() };
        Judgement::Keep(terms)
    }
}

impl From<rules::Terms> for Terms {
    fn from(terms: rules::Terms) -> Self {
        let windows = Windows::fresh_for(terms.freshness)
            .stale_while_revalidate(terms.while_revalidate)
            .stale_if_error(terms.if_error)
            .kept_for_validation(terms.for_validation);
        Self {
            windows,
            age: terms.age,
            freshness: terms.freshness,
            vary: terms.vary,
            always_validate: terms.always_validate,
        }
    }
}
