//! Batches: `load_many` answers many requests with one lookup and one call of the loader.

mod answers;
mod batch;
mod batch_answers;
mod batched;
pub(super) mod error;
mod flush;
mod item;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::box_future::BoxFuture;
use futures_util::FutureExt;

pub use self::answers::{BatchLoader, BatchResponse, BatchResult};
pub use self::batched::Batched;

use self::batch::Batch;
use self::batch_answers::BatchAnswers;
use self::item::BatchItem;
use super::core::Core;
use super::future::AnswerWithStatus;
use super::future::ResponseFuture;
use super::lookup::{IntoLookup, Lookup};
use super::service::ReadThrough;
use crate::codec::Codec;
use crate::error::Error;
use crate::status::CacheStatus;

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
    /// use bellwether::{Batched, Key, MemoryStore, ReadThroughLayer};
    /// use tower::{Layer, service_fn};
    ///
    /// // SELECT sku, name FROM items WHERE sku = ANY($1)
    /// async fn query_many(skus: Vec<u64>) -> Result<HashMap<u64, String>, std::io::Error> {
    ///     Ok(skus.into_iter().filter(|sku| *sku < 100).map(|sku| (sku, format!("item {sku}"))).collect())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = ReadThroughLayer::new(MemoryStore::new(10_000), |sku: &u64| {
    ///     Key::of("item").with(*sku)
    /// })
    /// .ttl(Duration::from_secs(60));
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
        load_many(&self.core, self.get_ref(), requests.into_iter().collect(), &self.key_of)
    }
}

/// Answers a batch of requests: see [`ReadThrough::load_many`].
pub(super) fn load_many<B, Req, R, C>(
    core: &Arc<Core<C>>,
    loader: &Batched<B>,
    requests: Vec<Req>,
    key_of: impl Fn(&Req) -> R,
) -> BatchFuture<B::Answer, B::LoadError>
where
    B: BatchLoader<Req>,
    Req: Send + 'static,
    R: IntoLookup,
    C: Codec<B::Answer>,
{
    let rules = core.errors.clone();
    let batch = Batch::new(loader.get_ref().clone(), loader.most(), requests.len(), rules);
    let mut answers = BatchAnswers::new();
    for (number, request) in requests.into_iter().enumerate() {
        let item = BatchItem::new(Arc::clone(&batch), number);
        let mut future = begin(core, item, request, &key_of);
        match future.at_once() {
            Some(answer) => answers.push(answer),
            None => answers.push_item(future.with_status()),
        }
    }
    let flat = |(answer, status): (Result<_, _>, _)| (answer.map_err(error::flat), status);
    BatchFuture(answers.run().map(move |all| all.into_iter().map(flat).collect()).boxed())
}

/// Begins one request as the service does, with its batch item as the loader.
fn begin<B, Req, R, C>(
    core: &Arc<Core<C>>,
    item: BatchItem<B, Req>,
    request: Req,
    key_of: impl Fn(&Req) -> R,
) -> ResponseFuture<BatchItem<B, Req>, Req, C>
where
    B: BatchLoader<Req>,
    Req: Send + 'static,
    R: IntoLookup,
    C: Codec<B::Answer>,
{
    let Lookup { key, options } = key_of(&request).into();
    match key {
        Some(key) => ResponseFuture::begin_as::<B::LoadError>(core, key, &item, request, options)
            .with_listener(|| item.listener()),
        None => ResponseFuture::bypass(core, item, request, options),
    }
}

/// The future of a batch of requests. Made by [`ReadThrough::load_many`].
///
/// Tasks ask the store and the loader, so a batch that is not polled delays no other caller. Hits
/// in this process need no task.
///
/// # Cancel safety
/// Dropping it takes nothing from other callers. Loads that have begun or hold leases go on for
/// their waiters; if there are none, [`WhenAbandoned`](crate::WhenAbandoned) applies. A call of the
/// loader is dropped when none of its requests goes on.
#[must_use = "futures do nothing unless polled"]
pub struct BatchFuture<R, E>(BoxFuture<'static, Vec<AnswerWithStatus<R, E>>>);

impl<R, E> BatchFuture<R, E> {
    /// Waits for the answers, each with how it came about.
    pub fn with_status(self) -> BatchWithStatus<R, E> {
        BatchWithStatus(self)
    }
}

impl<R, E> Future for BatchFuture<R, E> {
    type Output = Vec<Result<R, Error<E>>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answers = ready!(self.0.as_mut().poll(cx));
        Poll::Ready(answers.into_iter().map(|(answer, _)| answer).collect())
    }
}

impl<R, E> fmt::Debug for BatchFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchFuture").finish_non_exhaustive()
    }
}

/// The future of a batch of requests, which gives the [`CacheStatus`] of each answer. Made by
/// [`BatchFuture::with_status`], with the same cancel safety.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct BatchWithStatus<R, E>(BatchFuture<R, E>);

impl<R, E> Future for BatchWithStatus<R, E> {
    type Output = Vec<(Result<R, Error<E>>, CacheStatus)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.0.as_mut().poll(cx)
    }
}
