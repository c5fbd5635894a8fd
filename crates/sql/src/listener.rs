//! `Listener`: is told of new rows.

use std::time::Duration;

use sqlx::Pool;
use tokio::task::JoinHandle;

use super::dialect::{Dialect, Heard};

/// Listens for the messages of the table, in a task.
#[derive(Debug)]
pub(crate) struct Listener {
    heard: Heard,
    task: Option<JoinHandle<()>>,
}

impl Listener {
    pub(crate) fn start<D: Dialect>(pool: &Pool<D>, listens: bool) -> Self {
        let heard = Heard::default();
        let task = listens.then(|| tokio::spawn(D::listen(pool, heard.clone())));
        Self { heard, task }
    }

    /// Waits for a message that came since the last call.
    pub(crate) async fn woken(&self) {
        self.heard.woken().await;
    }

    /// How often the table is read nevertheless.
    pub(crate) fn poll(&self) -> Duration {
        match self.heard.is_listening() {
            true => Duration::from_secs(1),
            false => Duration::from_millis(100),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
