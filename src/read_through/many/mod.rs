//! Batches: `load_many` answers requests for many keys with one lookup and one call of the loader.

mod answers;
mod batch;
pub(super) mod error;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tower::service_fn;
use tracing::Instrument;

pub use self::answers::{BatchResponse, BatchResponseOf};
use self::batch::{Batch, ItemSlot};
use self::error::{lost, panicked};
use super::core::Core;
use super::future::{self, AnswerWithStatus};
use super::key_request::RequestOptions;
use crate::box_future::BoxFuture;
use crate::codec::Codec;
use crate::error::{BoxError, CacheError, Error};
use crate::key::Key;
use crate::status::CacheStatus;

/// Answers a request for each of these keys: see [`Cache::get_or_load_many`](crate::Cache::get_or_load_many).
///
/// More than may be loaded at a time are asked for in parts, each of which leaves room for other callers.
pub(crate) fn load_many<K, C, F, L, A, E>(
    core: &Arc<Core<C>>,
    keys: Vec<(Key, K)>,
    options: &RequestOptions,
    load: F,
) -> BatchFuture<A::Answer, E>
where
    K: Clone + Send + 'static,
    F: FnOnce(Vec<K>) -> L + Clone + Send + 'static,
    L: Future<Output = Result<A, E>> + Send + 'static,
    A: BatchResponse<K, E, Answer: Send + 'static>,
    E: Into<BoxError> + Send + Sync + 'static,
    C: Codec<A::Answer>,
{
    let most = core.policy.max_flights;
    let (core, options) = (Arc::clone(core), options.clone());
    let load_part = move |keys: Vec<(Key, K)>| {
        let batch = Batch::new(load.clone(), keys.len());
        let mut answers = Vec::with_capacity(keys.len());
        let waiting = FuturesUnordered::new();
        for (number, (key, request)) in keys.into_iter().enumerate() {
            let item = ItemSlot::new(&batch, number);
            let slot = Arc::clone(&item);
            let ask = service_fn(move |request| slot.ask(request));
            let item = || Some((item.listener(), item.group_of()));
            let mut answer = future::begin(&core, key, || ask, request, options.clone(), item);
            answers.push(answer.at_once());
            if answers[number].is_none() {
                let answer = AssertUnwindSafe(answer.with_status()).catch_unwind();
                waiting.push(answer.map(move |answer| (number, answer.ok())));
            }
        }
        collected(answers, waiting).boxed()
    };
    if keys.len() <= most {
        return BatchFuture(load_part(keys));
    }
    let all = async move {
        let (mut all, mut keys) = (Vec::with_capacity(keys.len()), keys.into_iter());
        while !keys.as_slice().is_empty() {
            all.extend(load_part(keys.by_ref().take(most.div_ceil(2)).collect()).await);
        }
        all
    };
    BatchFuture(all.boxed())
}

/// Waits for the answers that are not there yet. A task polls what is not answered at once. So other
/// callers of the batch's keys do not depend on whether this future is polled.
async fn collected<R: Send + 'static, E: 'static>(
    mut answers: Vec<Option<AnswerWithStatus<R, E>>>,
    mut waiting: FuturesUnordered<
        impl Future<Output = (usize, Option<AnswerWithStatus<R, E>>)> + Send + 'static,
    >,
) -> Vec<AnswerWithStatus<R, E>> {
    let count = answers.len();
    let mut all = async move {
        while let Some((number, answer)) = waiting.next().await {
            answers[number] = Some(answer.unwrap_or_else(|| failed(panicked())));
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
        _ => (0..count).map(|_| failed(lost())).collect(),
    }
}

fn failed<R, E>(error: CacheError) -> AnswerWithStatus<R, E> {
    (Err(error.into()), CacheStatus::Failed)
}

/// The future of a batch of requests. Made by [`Cache::get_or_load_many`](crate::Cache::get_or_load_many).
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

crate::debug_fields! { BatchFuture<R, E> }
