//! `ReadThrough`: the service.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower::Service;

use super::core::Core;
use super::future::ResponseFuture;
use super::handle::Handle;
use super::lookup::Lookup;
use crate::codec::{Codec, Json};
use crate::error::Error;

/// A loader behind a cache. See the [module page](super) for examples.
///
/// It is always ready: a hit, and a wait for another caller's load, take no capacity of the loader.
/// A load drives a clone of the loader to readiness before it is called, so limits, buffers and
/// timeouts below this keep working; what they refuse is an error of the loader.
pub struct ReadThrough<S, K, C = Json> {
    inner: S,
    pub(super) key_of: K,
    pub(super) core: Arc<Core<C>>,
}

impl<S, K, C> ReadThrough<S, K, C> {
    pub(super) fn new(inner: S, key_of: K, core: Arc<Core<C>>) -> Self {
        Self { inner, key_of, core }
    }

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

    /// A handle to what is kept: to invalidate, expire and prefetch it.
    pub fn handle(&self) -> Handle<Self>
    where
        Self: Clone,
    {
        Handle::new(Arc::clone(&self.core.store)).over(self.clone())
    }

    /// For how many keys this process is loading, or asking, right now. It is zero when nothing is
    /// under way, however many keys there were.
    pub fn in_flight(&self) -> usize {
        self.core.loads.len()
    }
}

impl<S, Req, K, R, C> Service<Req> for ReadThrough<S, K, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + Sync + 'static,
    Req: Send + 'static,
    K: Fn(&Req) -> R,
    R: Into<Lookup>,
    C: Codec<S::Response>,
{
    type Response = S::Response;
    type Error = Error<S::Error>;
    type Future = ResponseFuture<S, Req, C>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Req) -> Self::Future {
        let Lookup { key, how } = (self.key_of)(&request).into();
        match key {
            Some(key) => ResponseFuture::begin(&self.core, key, &self.inner, request, how),
            None => ResponseFuture::pass(self.inner.clone(), request, how),
        }
    }
}

impl<S: Clone, K: Clone, C> Clone for ReadThrough<S, K, C> {
    fn clone(&self) -> Self {
        let core = Arc::clone(&self.core);
        Self { inner: self.inner.clone(), key_of: self.key_of.clone(), core }
    }
}

impl<S: fmt::Debug, K, C: fmt::Debug> fmt::Debug for ReadThrough<S, K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadThrough")
            .field("inner", &self.inner)
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}
