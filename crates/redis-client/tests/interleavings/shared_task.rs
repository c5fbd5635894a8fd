//! Tasks are threads. Other threads may run before each step of one that waits for them, and see in the order of
//! loom that they have ended.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, poll_once};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use loom::thread;
use real_tokio::sync::oneshot;

#[derive(Clone)]
pub(crate) struct SharedTask<T: Clone> {
    output: Shared<BoxFuture<'static, Option<T>>>,
    steps: Steps,
}

#[derive(Clone, Default)]
struct Steps(Arc<AtomicUsize>);

impl Steps {
    fn step(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// One that has to wait is dropped, as if its runtime had ended.
pub(crate) fn start<T>(task: impl Future<Output = T> + 'static) -> SharedTask<T>
where
    T: Clone + Send + 'static,
{
    let (ended, end) = oneshot::channel();
    let steps = Steps::default();
    let of_task = steps.clone();
    thread::spawn(move || {
        let output = poll_once(task);
        of_task.step();
        if let Poll::Ready(output) = output {
            _ = ended.send(output);
        }
    });
    SharedTask { output: async { end.await.ok() }.boxed().shared(), steps }
}

impl<T: Clone> SharedTask<T> {
    pub(crate) fn peek(&self) -> Option<&Option<T>> {
        self.output.peek().inspect(|_| self.steps.step())
    }
}

impl<T: Clone> Future for SharedTask<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let output = Pin::new(&mut self.output).poll(context);
        self.steps.step();
        output
    }
}
