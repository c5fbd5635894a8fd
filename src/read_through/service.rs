//! `ReadThrough`: the service that a layer makes.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use tower::Service;

use super::answer::AnswerFuture;
use super::core::Core;
use super::future::ResponseFuture;
use super::handle::Handle;
use super::lookup::{IntoLookup, Lookup};
use super::many::{self, BatchFuture, BatchLoader, Batched};
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

    /// A handle to the stored entries: to invalidate, expire and prefetch them.
    pub fn handle(&self) -> Handle<Self>
    where
        Self: Clone,
    {
        self.core.handle().over(self.clone())
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

impl<S, K, C> ReadThrough<S, K, C> {
    /// Begins a request.
    #[inline]
    pub(super) fn request<Req, R>(&self, request: Req) -> ResponseFuture<S, Req, C>
    where
        S: Service<Req> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError> + Send + Sync + 'static,
        Req: Send + 'static,
        K: Fn(&Req) -> R,
        R: IntoLookup,
        C: Codec<S::Response>,
    {
        let Lookup { key, options } = (self.key_of)(&request).into();
        match key {
            Some(key) => {
                let Self { core, inner, .. } = self;
                ResponseFuture::begin::<S::Error>(core, key, inner, request, options)
            }
            None => ResponseFuture::bypass(&self.core, self.inner.clone(), request, options),
        }
    }
}

impl<B, K, C> ReadThrough<Batched<B>, K, C> {
    /// Answers a batch of requests: an answer for each, in their order.
    ///
    /// Each request behaves as it would alone: it is coalesced with other callers of its key, may
    /// get a stale answer, and fails individually. But one round trip looks up all of them, and one
    /// call loads the misses. That call starts as soon as each other request has its answer or
    /// waits for the load of another caller. Requests without a key go with that call. Requests
    /// that have to load later, as when another caller's load fails, go by a further call.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use std::time::Duration;
    ///
    /// use bellwether::{Key, MemoryStore, ReadThroughLayer};
    /// use bellwether::batch::Batched;
    /// use tower::{Layer, service_fn};
    ///
    /// // SELECT sku, name FROM items WHERE sku = ANY($1)
    /// async fn query_many(skus: Vec<u64>) -> Result<HashMap<u64, String>, std::io::Error> {
    ///     Ok(skus.into_iter().filter(|sku| *sku < 100).map(|sku| (sku, format!("item {sku}"))).collect())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = ReadThroughLayer::builder(MemoryStore::new(10_000), |sku: &u64| {
    ///     Key::of("item").with(*sku)
    /// })
    /// .ttl(Duration::from_secs(60))
    /// .build()?;
    /// let catalog = layer.layer(Batched::new(service_fn(query_many)));
    ///
    /// let mut page = vec![];
    /// for item in catalog.load_many([7, 4, 1_000]).await {
    ///     page.push(item?);
    /// }
    /// assert_eq!(page, [Some("item 7".to_owned()), Some("item 4".to_owned()), None]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn load_many<Req, R>(
        &self,
        requests: impl IntoIterator<Item = Req>,
    ) -> BatchFuture<B::Answer, B::LoadError>
    where
        B: BatchLoader<Req>,
        Req: Send + 'static,
        K: Fn(&Req) -> R,
        R: IntoLookup,
        C: Codec<B::Answer>,
    {
        many::load_many(&self.core, &self.inner, requests.into_iter().collect(), &self.key_of)
    }

    /// Answers one request, as a batch of one. It shares the loads of batches.
    pub fn load<Req, L>(&self, request: Req) -> AnswerFuture<B::Answer, B::LoadError>
    where
        B: BatchLoader<Req>,
        Req: Send + 'static,
        K: Fn(&Req) -> L,
        L: IntoLookup,
        C: Codec<B::Answer>,
    {
        let answer = self.load_many([request]).with_status().map(|answers| {
            let first = answers.into_iter().next();
            first.unwrap_or_else(|| unreachable!("a batch has an answer for each request"))
        });
        AnswerFuture::of(answer)
    }
}

impl<S, Req, K, R, C> Service<Req> for ReadThrough<S, K, C>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send + Sync + 'static,
    Req: Send + 'static,
    K: Fn(&Req) -> R,
    R: IntoLookup,
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
        self.request(request)
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
