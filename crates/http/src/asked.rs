//! `CacheRequest`: what one request asks for.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use bellwether::{Digest, Key};
use http::request::Parts;

use super::kept::{CachedResponse, VaryIndex};
use super::mode;
use super::rules::Demand;

/// What one request asks for, for as long as it is on its way.
pub(super) struct CacheRequest {
    pub(super) parts: Parts,
    /// What its target is kept under, whatever the request says besides.
    pub(super) primary: Key,
    pub(super) demand: Demand,
    /// What its own load gave, where the waiters of that load are told something else.
    own: Mutex<Option<Arc<CachedResponse>>>,
}

impl CacheRequest {
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

    pub(super) fn put_own(&self, whole: Arc<CachedResponse>) {
        *self.own.lock().unwrap_or_else(PoisonError::into_inner) = Some(whole);
    }

    pub(super) fn take_own(&self) -> Option<Arc<CachedResponse>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Shows no headers: they may hold anything.
impl fmt::Debug for CacheRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parts, primary, .. } = self;
        f.debug_struct("CacheRequest")
            .field("method", &parts.method)
            .field("primary", primary)
            .finish()
    }
}

/// One load: what it is for, and the key that it lands under.
pub(super) struct FetchRequest<ReqB> {
    pub(super) asked: Arc<CacheRequest>,
    pub(super) key: Key,
    /// What the key was made by, if it is the key of a variant.
    pub(super) vary_index: Option<Arc<VaryIndex>>,
    /// What is kept did not do.
    pub(super) is_anew: bool,
    /// It is for one caller, which waits for no other, and nothing is kept for others.
    pub(super) is_alone: bool,
    /// The origin is asked with an empty one: a request with content is not for a cache.
    body: PhantomData<fn() -> ReqB>,
}

impl<ReqB> FetchRequest<ReqB> {
    /// For the target itself.
    pub(super) fn primary(asked: &Arc<CacheRequest>) -> Self {
        let key = asked.primary.clone();
        Self {
            asked: Arc::clone(asked),
            key,
            vary_index: None,
            is_anew: false,
            is_alone: false,
            body: PhantomData,
        }
    }

    /// For the variant of it that this request selects.
    pub(super) fn variant(asked: &Arc<CacheRequest>, vary_index: Arc<VaryIndex>) -> Self {
        let key = vary_index.key_for(&asked.primary, &asked.parts.headers);
        Self {
            asked: Arc::clone(asked),
            key,
            vary_index: Some(vary_index),
            is_anew: false,
            is_alone: false,
            body: PhantomData,
        }
    }
}

impl<ReqB> fmt::Debug for FetchRequest<ReqB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchRequest").field("asked", &self.asked).field("key", &self.key).finish()
    }
}
