//! A load of one request for itself, past the cache.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tower::util::Oneshot;
use tower::{Service, ServiceExt};

use crate::key::Key;
use crate::stats::{LoadReason, LoadResult, RunningLoad, Statistics};

/// The call of a loader for one request, and its record. It starts with the first poll.
#[pin_project]
pub(super) struct IndividualLoad<S: Service<Req>, Req> {
    #[pin]
    answer: Oneshot<S, Req>,
    statistics: Arc<Statistics>,
    key: Option<Key>,
    running: Option<RunningLoad>,
}

impl<S: Service<Req>, Req> IndividualLoad<S, Req> {
    /// The load of a request, which bypasses the cache for lack of a key or because answers for
    /// its key are not kept.
    pub(super) fn boxed(
        service: S,
        request: Req,
        key: Option<&Key>,
        statistics: &Arc<Statistics>,
    ) -> Pin<Box<Self>> {
        let statistics = Arc::clone(statistics);
        let answer = service.oneshot(request);
        Box::pin(Self { answer, statistics, key: key.cloned(), running: None })
    }
}

impl<S: Service<Req>, Req> Future for IndividualLoad<S, Req> {
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let why = if this.key.is_some() { LoadReason::NotKept } else { LoadReason::NoKey };
        this.running.get_or_insert_with(|| this.statistics.load(this.key.as_ref(), why));
        let answer = ready!(this.answer.poll(cx));
        if let Some(running) = this.running.take() {
            running.end(if answer.is_ok() { LoadResult::Succeeded } else { LoadResult::Failed });
        }
        Poll::Ready(answer)
    }
}
