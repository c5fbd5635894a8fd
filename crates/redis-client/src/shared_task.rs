//! A task that all wait for who need what comes of it.

use bellwether::adapter::BoxFuture;
use futures_util::FutureExt;
use futures_util::future::Shared;

/// What comes of a task. None if its runtime has ended before, or it has panicked.
pub(super) type SharedTask<T> = Shared<BoxFuture<'static, Option<T>>>;

/// Starts a task, which goes on when nothing waits for it.
pub(super) fn start<T>(task: impl Future<Output = T> + Send + 'static) -> SharedTask<T>
where
    T: Clone + Send + 'static,
{
    let running = tokio::spawn(task);
    async { running.await.ok() }.boxed().shared()
}
