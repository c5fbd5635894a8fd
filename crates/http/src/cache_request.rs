//! `CacheRequest`: a request to the cache, `FetchRequest`: a load on its behalf, and `Origin`: what that
//! needs of the service behind the layer.

use std::sync::{Arc, Mutex, MutexGuard};

use bellwether::adapter::locked;
use bellwether::store::Digest;
use bellwether::{BoxError, Key};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, header};
use http_body::Body;
use tower::Service;

use super::caching_rules::Rules;
use super::codec::CachedResponse;
use super::rules::{self, Demand};
use super::vary_index::VaryIndex;

/// A request to the cache, until it has its response.
pub(super) struct CacheRequest {
    /// As the key has them: see [`Rules::normalize`].
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
pub(super) struct LeftByLoad {
    /// The response, if the waiters of the load got a `Vary` index instead, and whether it is stored.
    pub(super) own: Option<(Arc<CachedResponse>, bool)>,
    /// The status of the origin's response.
    pub(super) status: Option<StatusCode>,
    /// The fields of the origin's response that are not for later callers.
    pub(super) fields: HeaderMap,
}

impl CacheRequest {
    pub(super) fn new(mut parts: Parts, primary: Key, demand: Demand, rules: &Rules) -> Self {
        rules.normalize(&mut parts);
        let has_credentials = rules.defaults.credentials.are_in(&parts.headers);
        Self { parts, primary, demand, has_credentials, left: Mutex::default() }
    }

    /// Whether it asks for the head or for a part of a response.
    pub(super) fn is_for_part(&self) -> bool {
        self.parts.method == Method::HEAD || self.is_for_range()
    }

    /// Whether it asks for a part of the body.
    pub(super) fn is_for_range(&self) -> bool {
        self.parts.method == Method::GET && self.parts.headers.contains_key(header::RANGE)
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

    /// Notes what the origin has answered to its own load.
    pub(super) fn note_answer(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        unstored: &[HeaderName],
    ) {
        let mut left = self.left();
        left.status = Some(status);
        left.fields = rules::fields_for_one(headers, unstored);
    }

    /// What its own load has left for it so far.
    pub(super) fn left(&self) -> MutexGuard<'_, LeftByLoad> {
        locked(&self.left)
    }
}

/// One load: the request it is for, and the key that its response is stored under.
pub(super) struct FetchRequest {
    pub(super) cache_request: Arc<CacheRequest>,
    pub(super) key: Key,
    /// The `Vary` index that the key was made by, if it is the key of a variant.
    pub(super) vary_index: Option<Arc<VaryIndex>>,
    /// The stored response does not satisfy the request.
    pub(super) forces_refresh: bool,
    /// It is not coalesced: it is for one caller only, and its response is not stored for others.
    pub(super) is_alone: bool,
    /// After an error, it asks the origin with other requests that wait, too.
    pub(super) tries_others: bool,
}

impl FetchRequest {
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
            tries_others: true,
        }
    }

    /// A GET like the caller's, with these header fields, without hop-by-hop fields.
    pub(super) fn request(&self, headers: HeaderMap) -> Request<()> {
        let parts = &self.cache_request.parts;
        let mut request = Request::new(());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = parts.uri.clone();
        *request.version_mut() = parts.version;
        *request.headers_mut() = headers;
        rules::remove_hop_by_hop(request.headers_mut());
        *request.extensions_mut() = parts.extensions.clone();
        request
    }
}

/// The body of a response of the origin.
pub(super) trait OriginBody:
    Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static
{
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static> OriginBody for B {}

/// An HTTP service that can be cloned, and whose clones can be called from any task.
pub(super) trait Origin<ReqB, B>:
    Service<Request<ReqB>, Response = Response<B>, Error: Into<BoxError>, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<S, ReqB, B> Origin<ReqB, B> for S where
    S: Service<Request<ReqB>, Response = Response<B>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// Takes a 304 to a request without conditions for a failure of the origin: neither the cache nor
/// the client has a response that it could be about.
pub(super) fn check_not_modified(status: StatusCode, has_conditions: bool) -> Result<(), BoxError> {
    match status == StatusCode::NOT_MODIFIED && !has_conditions {
        true => Err("the origin answered 304 to a request without conditions".into()),
        false => Ok(()),
    }
}
