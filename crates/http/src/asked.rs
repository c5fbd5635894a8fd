//! `Asked`: what one request asks for.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use bellwether::{Digest, Key};
use http::request::Parts;

use super::kept::{Spec, Whole};
use super::mode;
use super::rules::Demand;

/// What one request asks for, for as long as it is on its way.
pub(super) struct Asked {
    pub(super) parts: Parts,
    /// What its target is kept under, whatever the request says besides.
    pub(super) primary: Key,
    pub(super) demand: Demand,
    /// What its own load gave, where those who wait for that load are told something else.
    own: Mutex<Option<Arc<Whole>>>,
}

impl Asked {
    pub(super) fn new(parts: Parts, primary: Key, demand: Demand) -> Self {
        Self { parts, primary, demand, own: Mutex::new(None) }
    }

    /// What its answers are known by: those to requests with credentials and those to requests
    /// without may be for different callers.
    pub(super) fn alike(&self) -> Digest {
        let target = self.primary.digest();
        match mode::is_nobodys(&self.parts.headers) {
            true => target,
            false => Key::of("http-credentials").with(target.as_bytes()).digest(),
        }
    }

    pub(super) fn put_own(&self, whole: Arc<Whole>) {
        *self.own.lock().unwrap_or_else(PoisonError::into_inner) = Some(whole);
    }

    pub(super) fn take_own(&self) -> Option<Arc<Whole>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Shows no headers: they may hold anything.
impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parts, primary, .. } = self;
        f.debug_struct("Asked").field("method", &parts.method).field("primary", primary).finish()
    }
}

/// One load: what it is for, and the key that it lands under.
pub(super) struct Errand<ReqB> {
    pub(super) asked: Arc<Asked>,
    pub(super) key: Key,
    /// What the key was made by, if it is the key of a variant.
    pub(super) spec: Option<Arc<Spec>>,
    /// What is kept did not do.
    pub(super) is_anew: bool,
    /// It is for one caller, which waits for no other, and nothing is kept for others.
    pub(super) is_alone: bool,
    /// The origin is asked with an empty one: a request with content is not for a cache.
    body: PhantomData<fn() -> ReqB>,
}

impl<ReqB> Errand<ReqB> {
    /// For the target itself.
    pub(super) fn primary(asked: &Arc<Asked>) -> Self {
        let key = asked.primary.clone();
        Self {
            asked: Arc::clone(asked),
            key,
            spec: None,
            is_anew: false,
            is_alone: false,
            body: PhantomData,
        }
    }

    /// For the variant of it that this request selects.
    pub(super) fn variant(asked: &Arc<Asked>, spec: Arc<Spec>) -> Self {
        let key = spec.key_for(&asked.primary, &asked.parts.headers);
        Self {
            asked: Arc::clone(asked),
            key,
            spec: Some(spec),
            is_anew: false,
            is_alone: false,
            body: PhantomData,
        }
    }
}

impl<ReqB> fmt::Debug for Errand<ReqB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Errand").field("asked", &self.asked).field("key", &self.key).finish()
    }
}
