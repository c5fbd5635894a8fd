//! `CacheRequest`: a request to the cache, and `FetchRequest`: a load on its behalf.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether::{Digest, Key};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use super::codec::CachedResponse;
use super::mode::Mode;
use super::rules::{self, Demand};
use super::vary_index::VaryIndex;

/// A request to the cache, until it has its response.
pub(super) struct CacheRequest {
    pub(super) parts: Parts,
    /// The key of its target, or the key that the program made. Variants have keys of their own.
    pub(super) primary: Key,
    pub(super) demand: Demand,
    pub(super) has_credentials: bool,
    /// What its own load has left for it. Locked for a few operations, never across an `.await`.
    left: Mutex<LeftByLoad>,
}

/// What the load of a request leaves for that request alone.
#[derive(Default)]
struct LeftByLoad {
    /// The response, if the waiters of the load got a `Vary` index instead.
    own: Option<Arc<CachedResponse>>,
    /// The status of the origin's response.
    status: Option<StatusCode>,
    /// The fields of the origin's response that are not for later callers.
    fields: HeaderMap,
}

impl CacheRequest {
    pub(super) fn new(parts: Parts, primary: Key, demand: Demand, mode: &Mode) -> Self {
        let has_credentials = mode.credentials().are_in(&parts.headers);
        Self { parts, primary, demand, has_credentials, left: Mutex::default() }
    }

    /// Under what private and slow responses are counted: the target, and whether the request has
    /// credentials. Responses to requests with credentials say nothing about those without.
    pub(super) fn coalescing_digest(&self) -> Digest {
        let target = self.primary.digest();
        match self.has_credentials {
            true => Key::of("http-credentials").with(target.as_bytes()).digest(),
            false => target,
        }
    }

    pub(super) fn put_own(&self, cached: Arc<CachedResponse>) {
        self.left().own = Some(cached);
    }

    /// Notes what the origin has answered to its own load.
    pub(super) fn note_answer(&self, status: StatusCode, headers: &HeaderMap) {
        let mut left = self.left();
        left.status = Some(status);
        left.fields = rules::fields_for_one(headers);
    }

    /// The status of the origin's response to its own load, if there was one.
    pub(super) fn origin_status(&self) -> Option<StatusCode> {
        self.left().status
    }

    /// The fields of the response to its own load that are not for later callers.
    pub(super) fn take_fields(&self) -> HeaderMap {
        std::mem::take(&mut self.left().fields)
    }

    pub(super) fn take_own(&self) -> Option<Arc<CachedResponse>> {
        self.left().own.take()
    }

    fn left(&self) -> MutexGuard<'_, LeftByLoad> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One load: the request it is for, and the key that its response is stored under.
pub(super) struct FetchRequest<ReqB> {
    pub(super) cache_request: Arc<CacheRequest>,
    pub(super) key: Key,
    /// The `Vary` index that the key was made by, if it is the key of a variant.
    pub(super) vary_index: Option<Arc<VaryIndex>>,
    /// The stored response does not satisfy the request.
    pub(super) forces_refresh: bool,
    /// It is not coalesced: it is for one caller only, and its response is not stored for others.
    pub(super) is_alone: bool,
    /// The body that the origin gets is empty, since requests with content bypass the cache.
    body: PhantomData<fn() -> ReqB>,
}

impl<ReqB> FetchRequest<ReqB> {
    /// A load for the target itself, or for the variant of it that this request selects.
    pub(super) fn new(
        cache_request: &Arc<CacheRequest>,
        vary_index: Option<Arc<VaryIndex>>,
        forces_refresh: bool,
    ) -> Self {
        let CacheRequest { primary, parts, .. } = &**cache_request;
        let key = match &vary_index {
            None => primary.clone(),
            Some(vary_index) => vary_index.key_for(primary, &parts.headers),
        };
        Self {
            cache_request: Arc::clone(cache_request),
            key,
            vary_index,
            forces_refresh,
            is_alone: false,
            body: PhantomData,
        }
    }
}
