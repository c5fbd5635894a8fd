//! A load of one request for itself, past the cache.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tower::util::Oneshot;
use tower::{Service, ServiceExt};

use crate::error::CacheError;
use crate::key::Key;
use crate::stats::{LoadReason, LoadResult, RunningLoad, Statistics};
use crate::trace::CallerSpan;

/// The call of a loader for one request past the cache, in the statistics and in a span of its own.
/// It starts with the first poll. The outer error is a panic of the loader. Made by
/// [`CacheClient::load_alone`](crate::adapter::CacheClient::load_alone).
///
/// # Cancel safety
/// Dropping it drops the call.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct AloneLoad<S: Service<Req>, Req> {
    #[pin]
    answer: Oneshot<S, Req>,
    statistics: Arc<Statistics>,
    key: Option<Key>,
    running: Option<RunningLoad>,
}

impl<S: Service<Req>, Req> AloneLoad<S, Req> {
    /// The load of a request, which bypasses the cache for lack of a key or because answers for
    /// its key are not kept.
    pub(in crate::read_through) fn new(
        service: S,
        request: Req,
        key: Option<&Key>,
        statistics: &Arc<Statistics>,
    ) -> Self {
        let statistics = Arc::clone(statistics);
        let answer = service.oneshot(request);
        Self { answer, statistics, key: key.cloned(), running: None }
    }
}

impl<S: Service<Req>, Req> Future for AloneLoad<S, Req> {
    type Output = Result<Result<S::Response, S::Error>, CacheError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let why = if this.key.is_some() { LoadReason::NotKept } else { LoadReason::NoKey };
        let begin = || this.statistics.load(this.key.as_ref(), why, &CallerSpan::default());
        let span = this.running.get_or_insert_with(begin).span().clone();
        let polled = AssertUnwindSafe(|| span.in_scope(|| this.answer.poll(cx)));
        // A loader that has panicked is not polled again.
        let answer = match catch_unwind(polled) {
            Ok(polled) => Ok(ready!(polled)),
            Err(_) => Err(CacheError::loader_panicked(this.key.as_ref())),
        };
        if let Some(running) = this.running.take() {
            running.end(match &answer {
                Ok(Ok(_)) => LoadResult::Succeeded,
                Ok(Err(_)) => LoadResult::Failed,
                Err(_) => LoadResult::Panicked,
            });
        }
        Poll::Ready(answer)
    }
}

impl<S: Service<Req>, Req> fmt::Debug for AloneLoad<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AloneLoad").field("key", &self.key).finish_non_exhaustive()
    }
}
