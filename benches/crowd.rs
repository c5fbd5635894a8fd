//! A crowd: many tasks that wait at the same time, and a count of them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use pin_project::pin_project;
use tokio::sync::Notify;

/// Counts the tasks that wait.
pub(crate) struct Crowd {
    size: usize,
    waiting: AtomicUsize,
    gathered: Notify,
}

impl Crowd {
    pub(crate) fn new(size: usize) -> Arc<Self> {
        Arc::new(Self { size, waiting: AtomicUsize::new(0), gathered: Notify::new() })
    }

    /// Adds a task. It waits once it is polled.
    pub(crate) fn join<F>(self: &Arc<Self>, future: F) -> Joining<F> {
        Joining { future, crowd: Some(Arc::clone(self)) }
    }

    /// Waits until all tasks wait. It can be awaited again then.
    pub(crate) async fn gathered(&self) {
        self.gathered.notified().await;
    }

    fn count(&self) {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        if waiting.is_multiple_of(self.size) {
            self.gathered.notify_one();
        }
    }
}

/// A task that joins a crowd: hardly larger than the future itself.
#[pin_project]
pub(crate) struct Joining<F> {
    #[pin]
    future: F,
    crowd: Option<Arc<Crowd>>,
}

impl<F: Future> Future for Joining<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let polled = this.future.poll(cx);
        if let Some(crowd) = this.crowd.take() {
            crowd.count();
        }
        polled
    }
}
