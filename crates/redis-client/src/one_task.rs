//! A task that runs once at a time.

use std::sync::Mutex;

use bellwether::adapter::locked;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// A task that runs once at a time. It ends when this is dropped, and with its runtime.
#[derive(Debug, Default)]
pub struct OneTask(Mutex<JoinSet<()>>);

impl OneTask {
    /// Starts the task, unless it runs already or there is no runtime.
    pub fn start<F: Future<Output = ()> + Send + 'static>(&self, task: impl FnOnce() -> F) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut running = locked(&self.0);
        running.try_join_next();
        if running.is_empty() {
            running.spawn_on(task(), &runtime);
        }
    }
}
