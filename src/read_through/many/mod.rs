//! Batches: `load_many` answers many requests with one lookup and one call of the loader.

mod answers;
mod batch;
pub(super) mod error;

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::Instrument;

pub use self::answers::{BatchLoader, BatchResponse};
use self::batch::{Batch, BatchItem};
use self::error::{ItemError, flat};
use super::core::Core;
use super::future::{AnswerWithStatus, ResponseFuture};
use super::lookup::{IntoLookup, Lookup};
use crate::box_future::BoxFuture;
use crate::codec::Codec;
use crate::config_error::{ConfigError, within};
use crate::error::Error;
use crate::shared_error::SharedError;
use crate::status::CacheStatus;

/// A batch loader as the loader of a cache: see [`load_many`](crate::service::ReadThrough::load_many).
///
/// The loader is a `Service<Vec<Req>>` whose response is [`BatchResponse`](crate::batch::BatchResponse). Behind a
/// layer, [`load`](crate::service::ReadThrough::load) answers one request as a batch of one. So callers of
/// one item and callers of a page share one layer, its keys and its loads.
///
/// To limit how many calls run at once or how long they take, wrap the loader before it goes in
/// here.
#[derive(Clone, Debug)]
pub struct Batched<B> {
    loader: B,
    most: usize,
}

impl<B> Batched<B> {
    /// Wraps a loader.
    pub fn new(loader: B) -> Self {
        Self { loader, most: 1_000 }
    }

    /// Sets how many requests one call gets at most. Further requests go into further calls, which
    /// run at the same time.
    ///
    /// Default: 1,000, the longest `IN (..)` list that every common database accepts.
    ///
    /// # Errors
    /// If it is zero, or more than 1,000,000.
    pub fn at_most(mut self, most: usize) -> Result<Self, ConfigError> {
        self.most = within("batch size", most, 1, 1_000_000)?;
        Ok(self)
    }
}

/// Answers a batch of requests: see [`ReadThrough::load_many`](crate::service::ReadThrough::load_many).
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
    let batch = Batch::new(loader.loader.clone(), loader.most, requests.len(), rules);
    let mut answers = Vec::with_capacity(requests.len());
    let waiting = FuturesUnordered::new();
    for (number, request) in requests.into_iter().enumerate() {
        let item = BatchItem::new(&batch, number);
        let Lookup { key, options } = key_of(&request).into();
        let mut answer = match key {
            Some(key) => ResponseFuture::begin::<B::LoadError>(core, key, &item, request, options)
                .with_listener(|| item.listener()),
            None => ResponseFuture::bypass(core, item, request, options),
        };
        answers.push(answer.at_once());
        if answers[number].is_none() {
            let answer = AssertUnwindSafe(answer.with_status()).catch_unwind();
            waiting.push(answer.map(move |answer| (number, answer.ok())));
        }
    }
    BatchFuture(collected(answers, waiting).map(|all| all.into_iter().map(typed).collect()).boxed())
}

/// Waits for the answers that are not there yet. A task polls what is not answered at once. So other
/// callers of the batch's keys do not depend on whether this future is polled.
async fn collected<R: Send + 'static>(
    mut answers: Vec<Option<ItemAnswer<R>>>,
    mut waiting: FuturesUnordered<
        impl Future<Output = (usize, Option<ItemAnswer<R>>)> + Send + 'static,
    >,
) -> Vec<ItemAnswer<R>> {
    let count = answers.len();
    let mut all = async move {
        while let Some((number, answer)) = waiting.next().await {
            answers[number] = Some(answer.unwrap_or_else(|| failed(ItemError::panicked())));
        }
        answers.into_iter().flatten().collect()
    }
    .boxed();
    if let Some(answers) = (&mut all).now_or_never() {
        return answers;
    }
    let Ok(runtime) = Handle::try_current() else { return all.await };
    let mut task = JoinSet::new();
    task.spawn_on(all.in_current_span(), &runtime);
    match task.join_next().await {
        Some(Ok(answers)) => answers,
        _ => (0..count).map(|_| failed(ItemError::lost())).collect(),
    }
}

type ItemAnswer<R> = AnswerWithStatus<R, ItemError>;

fn failed<R>(error: ItemError) -> ItemAnswer<R> {
    (Err(Error::Load(SharedError::new(error))), CacheStatus::Failed)
}

fn typed<R, E>((answer, status): ItemAnswer<R>) -> AnswerWithStatus<R, E> {
    (answer.map_err(flat), status)
}

/// The future of a batch of requests. Made by [`ReadThrough::load_many`](crate::service::ReadThrough::load_many).
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
    pub fn with_status(self) -> BoxFuture<'static, Vec<AnswerWithStatus<R, E>>> {
        self.0
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
