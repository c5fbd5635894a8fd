//! Services of a layer without the types of their loader and their key function.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use tower::Service;

use super::future::AnswerWithStatus;
#[cfg(feature = "macros")]
use super::future::ResponseFuture;
use super::lookup::IntoLookup;
use super::many::{BatchFuture, BatchLoader, Batched};
use super::service::ReadThrough;
use crate::box_future::BoxFuture;
use crate::codec::Codec;
use crate::error::{BoxError, Error};
use crate::status::CacheStatus;

/// A [`ReadThrough`] service in a box, so that a struct can name its type: requests, answers and
/// errors of the loader. Made by [`ReadThrough::boxed`].
///
/// Unlike tower's boxes, it keeps the [status](BoxResponseFuture::with_status) of answers. Clones
/// share one service. A request costs one allocation more than that service.
///
/// ```
/// use bellwether::{BoxReadThrough, Key, MemoryStore, ReadThroughLayer, loader_fn};
/// use tower::{Layer, Service};
///
/// struct Shop {
///     names: BoxReadThrough<u64, String, std::io::Error>,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let layer = ReadThroughLayer::new(MemoryStore::new(10), |sku: &u64| Key::of("name").with(*sku));
/// let load = loader_fn(async |sku: u64| Ok::<_, std::io::Error>(format!("item {sku}")));
/// let mut shop = Shop { names: layer.layer(load).boxed() };
///
/// let (name, status) = shop.names.call(42).with_status().await;
/// assert_eq!(name.unwrap(), "item 42");
/// assert_eq!(status.to_string(), "bellwether; fwd=miss");
/// # }
/// ```
pub struct BoxReadThrough<Req, R, E>(Arc<Call<Req, R, E>>);

type Call<Req, R, E> = dyn Fn(Req) -> BoxFuture<'static, AnswerWithStatus<R, E>> + Send + Sync;

impl<S, K, C> ReadThrough<S, K, C> {
    /// This service in a box. For a service of a [`Batched`] loader,
    /// [`boxed_batched`](Self::boxed_batched) keeps the batches.
    pub fn boxed<Req, L>(self) -> BoxReadThrough<Req, S::Response, S::Error>
    where
        S: Service<Req> + Clone + Send + Sync + 'static,
        S::Future: Send,
        S::Response: Send + 'static,
        S::Error: Into<BoxError> + Send + Sync + 'static,
        Req: Send + 'static,
        K: Fn(&Req) -> L + Send + Sync + 'static,
        L: IntoLookup,
        C: Codec<S::Response>,
    {
        BoxReadThrough(Arc::new(move |request| self.request(request).with_status().boxed()))
    }
}

impl<Req, R, E> Service<Req> for BoxReadThrough<Req, R, E> {
    type Response = R;
    type Error = Error<E>;
    type Future = BoxResponseFuture<R, E>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        BoxResponseFuture((self.0)(request))
    }
}

impl<Req, R, E> Clone for BoxReadThrough<Req, R, E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Req, R, E> fmt::Debug for BoxReadThrough<Req, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxReadThrough").finish_non_exhaustive()
    }
}

/// As [`BoxReadThrough`], for a [`Batched`] loader: it also answers batches. Made by
/// [`ReadThrough::boxed_batched`]. Its errors are those of the batch loader.
///
/// ```
/// use std::collections::HashMap;
///
/// use bellwether::{Batched, BoxBatchReadThrough, Key, MemoryStore, ReadThroughLayer, loader_fn};
/// use tower::Layer;
///
/// struct Shop {
///     names: BoxBatchReadThrough<u64, Option<String>, std::io::Error>,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let layer = ReadThroughLayer::new(MemoryStore::new(10), |sku: &u64| Key::of("name").with(*sku));
/// let load = loader_fn(async |skus: Vec<u64>| {
///     let names = skus.into_iter().map(|sku| (sku, format!("item {sku}")));
///     Ok::<_, std::io::Error>(names.collect::<HashMap<_, _>>())
/// });
/// let shop = Shop { names: layer.layer(Batched::new(load)).boxed_batched() };
///
/// for (name, status) in shop.names.load_many([1, 2]).with_status().await {
///     println!("{name:?}: {status}");
/// }
/// # }
/// ```
pub struct BoxBatchReadThrough<Req, R, E>(Arc<LoadMany<Req, R, E>>);

type LoadMany<Req, R, E> = dyn Fn(Vec<Req>) -> BatchFuture<R, E> + Send + Sync;

impl<B, K, C> ReadThrough<Batched<B>, K, C> {
    /// Answers one request, as a batch of one. It shares the loads of batches.
    ///
    /// [`boxed_batched`](Self::boxed_batched) makes a service of it.
    pub fn load<Req, L>(&self, request: Req) -> BoxResponseFuture<B::Answer, B::LoadError>
    where
        B: BatchLoader<Req>,
        Req: Send + 'static,
        K: Fn(&Req) -> L,
        L: IntoLookup,
        C: Codec<B::Answer>,
    {
        BoxResponseFuture::of_one(self.load_many([request]))
    }

    /// This cache in a box, which is a service of single requests too.
    pub fn boxed_batched<Req, L>(self) -> BoxBatchReadThrough<Req, B::Answer, B::LoadError>
    where
        B: BatchLoader<Req> + Sync,
        Req: Send + 'static,
        K: Fn(&Req) -> L + Send + Sync + 'static,
        L: IntoLookup,
        C: Codec<B::Answer>,
    {
        BoxBatchReadThrough(Arc::new(move |requests| self.load_many(requests)))
    }
}

impl<Req, R, E> BoxBatchReadThrough<Req, R, E> {
    /// As [`ReadThrough::load_many`].
    pub fn load_many(&self, requests: impl IntoIterator<Item = Req>) -> BatchFuture<R, E> {
        (self.0)(requests.into_iter().collect())
    }
}

impl<Req, R: Send + 'static, E: Send + Sync + 'static> Service<Req>
    for BoxBatchReadThrough<Req, R, E>
{
    type Response = R;
    type Error = Error<E>;
    type Future = BoxResponseFuture<R, E>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        BoxResponseFuture::of_one(self.load_many([request]))
    }
}

/// The answer of a batch of one.
fn only<T>(answers: Vec<T>) -> T {
    let mut answers = answers.into_iter();
    answers.next().unwrap_or_else(|| unreachable!("a batch has an answer for each request"))
}

impl<Req, R, E> Clone for BoxBatchReadThrough<Req, R, E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Req, R, E> fmt::Debug for BoxBatchReadThrough<Req, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxBatchReadThrough").finish_non_exhaustive()
    }
}

/// The future of a request to a service in a box, or of a call of a function with the attribute
/// `#[read_through]`.
///
/// # Cancel safety
/// As [`ResponseFuture`](crate::ResponseFuture).
#[must_use = "futures do nothing unless polled"]
pub struct BoxResponseFuture<R, E>(BoxFuture<'static, AnswerWithStatus<R, E>>);

impl<R, E> BoxResponseFuture<R, E> {
    /// The answer to a request that has begun.
    #[cfg(feature = "macros")]
    pub(super) fn of<S, Req, C>(request: ResponseFuture<S, Req, C>) -> Self
    where
        S: Service<Req, Response = R, Error = E> + Clone + Send + 'static,
        S::Future: Send + 'static,
        R: Send + 'static,
        E: Into<BoxError> + Send + Sync + 'static,
        Req: Send + 'static,
        C: Codec<R>,
    {
        Self(request.with_status().boxed())
    }

    /// The answer of a batch of one.
    fn of_one(batch: BatchFuture<R, E>) -> Self
    where
        R: Send + 'static,
        E: Send + Sync + 'static,
    {
        Self(batch.with_status().map(only).boxed())
    }

    /// Waits for the answer and how it came about.
    pub fn with_status(self) -> BoxFuture<'static, (Result<R, Error<E>>, CacheStatus)> {
        self.0
    }
}

impl<R, E> Future for BoxResponseFuture<R, E> {
    type Output = Result<R, Error<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(|(answer, _)| answer)
    }
}

impl<R, E> fmt::Debug for BoxResponseFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxResponseFuture").finish_non_exhaustive()
    }
}
