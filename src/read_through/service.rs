//! `ReadThrough`: the service that a layer makes.

use std::sync::Arc;
use std::task::{Context, Poll};

use tower::Service;

use super::core::Core;
use super::future::{self, AnswerFuture};
use super::handle::Handle;
use super::key_request::{IntoKeyRequest, KeyRequest};
use super::load::sharing;
use crate::codec::{Codec, Json};
use crate::error::{BoxError, Error};
use crate::stats::CacheStats;

/// A loader behind a cache. See [`service`](crate::service) for examples.
///
/// It is always ready: a hit, or a wait for another caller's load, takes no capacity of the loader.
/// A load drives a clone of the loader to readiness before it calls it, so limits, buffers and
/// timeouts below this service keep working. Their errors are errors of the loader.
///
/// A load runs in a task of its own, in a [span](crate::trace) below that of the request that opened
/// it. Other task-locals of that request are not there: put what the loader needs into the request.
pub struct ReadThrough<S, K, C = Json> {
    pub(super) inner: S,
    pub(super) key_of: K,
    pub(super) core: Arc<Core<C>>,
}

impl<S, K, C> ReadThrough<S, K, C> {
    /// The loader.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The loader.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The loader.
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// A handle to the stored entries: to invalidate and expire them.
    pub fn handle(&self) -> Handle {
        self.core.handle()
    }

    /// What the services of this layer have done in this process: as
    /// [`Handle::stats`](crate::service::Handle::stats).
    pub fn stats(&self) -> CacheStats {
        self.core.statistics.read()
    }

    /// How many keys this process looks up or loads right now. It is zero when nothing is under
    /// way, however many keys there were before.
    pub fn in_flight(&self) -> usize {
        self.core.loads.len()
    }
}

impl<S, Req: Send + 'static, K, R: IntoKeyRequest, C> Service<Req> for ReadThrough<S, K, C>
where
    S: Service<Req, Response: Send, Error: Into<BoxError> + Send + Sync + 'static, Future: Send>,
    S: Clone + Send + 'static,
    K: Fn(&Req) -> R,
    C: Codec<S::Response>,
{
    type Response = S::Response;
    type Error = Error<S::Error>;
    type Future = AnswerFuture<S::Response, S::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Req) -> Self::Future {
        let KeyRequest { key, options } = (self.key_of)(&request).into();
        let loader = || sharing(self.inner.clone());
        match key {
            Some(key) => future::begin(&self.core, key, loader, request, options, || None),
            None => future::bypass(&self.core, loader(), request, options),
        }
    }
}

impl<S: Clone, K: Clone, C> Clone for ReadThrough<S, K, C> {
    fn clone(&self) -> Self {
        let core = Arc::clone(&self.core);
        Self { inner: self.inner.clone(), key_of: self.key_of.clone(), core }
    }
}

crate::debug_fields! { ReadThrough<S, K, C> where S: Debug, C: Debug => |it|
    inner = it.inner, core = it.core
}
