//! Tasks that run while there is work for them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

/// A task that is started when there is work for it, and ends when there is none.
#[derive(Clone, Default)]
pub(super) struct OnDemandTask(Arc<OnDemandState>);

#[derive(Default)]
struct OnDemandState {
    is_running: AtomicBool,
    /// Begins the work, if there is any.
    work: OnceLock<Box<Work>>,
}

type Work = dyn Fn() -> Option<BoxFuture<'static, ()>> + Send + Sync;

/// The task runs until this is dropped.
struct RunningTask(OnDemandTask);

impl OnDemandTask {
    /// Sets what the task does, once. If the work keeps what owns the task, that never ends.
    pub(super) fn set(
        &self,
        work: impl Fn() -> Option<BoxFuture<'static, ()>> + Send + Sync + 'static,
    ) {
        _ = self.0.work.set(Box::new(work));
    }

    /// Starts the task, unless it runs already or there is no runtime.
    pub(super) fn start(&self) {
        if !self.0.is_running.load(Ordering::Relaxed)
            && let Ok(runtime) = Handle::try_current()
            && !self.0.is_running.swap(true, Ordering::AcqRel)
        {
            runtime.spawn(RunningTask(self.clone()).run());
        }
    }

    fn work(&self) -> Option<BoxFuture<'static, ()>> {
        self.0.work.get()?()
    }
}

impl RunningTask {
    async fn run(self) {
        while let Some(work) = self.0.work() {
            work.await;
        }
        let task = self.0.clone();
        drop(self);
        // Work may have come while the task ended.
        if task.work().is_some() {
            task.start();
        }
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.0.0.is_running.store(false, Ordering::Release);
    }
}

impl fmt::Debug for OnDemandTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnDemandTask").field(&self.0.is_running).finish()
    }
}
