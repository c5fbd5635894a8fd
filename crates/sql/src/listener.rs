//! `Listener`: is told of new rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPool, PgPoolOptions};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::settings::FollowerSettings;

/// Listens for the messages of the table, in a task, by a connection of its own.
#[derive(Debug)]
pub(crate) struct Listener {
    heard: Arc<Heard>,
    task: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Heard {
    message: Notify,
    is_listening: AtomicBool,
}

impl Listener {
    pub(crate) fn start(settings: &FollowerSettings) -> Self {
        let heard = Arc::new(Heard::default());
        let options = (*settings.table.pool.connect_options()).clone();
        let task = settings.listens.then(|| {
            let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
            tokio::spawn(listen(pool, Arc::clone(&heard)))
        });
        Self { heard, task }
    }

    /// Waits for a message that came since the last call.
    pub(crate) async fn woken(&self) {
        self.heard.message.notified().await;
    }

    /// How often the table is read nevertheless.
    pub(crate) fn poll(&self) -> Duration {
        match self.heard.is_listening.load(Ordering::Relaxed) {
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

/// Connects again for ever. The first message of each connection is that there may have been some.
async fn listen(pool: PgPool, heard: Arc<Heard>) {
    loop {
        if let Ok(mut listener) = PgListener::connect_with(&pool).await
            && listener.listen("bellwether_changes").await.is_ok()
        {
            heard.is_listening.store(true, Ordering::Relaxed);
            heard.message.notify_one();
            while let Ok(Some(_)) = listener.try_recv().await {
                heard.message.notify_one();
            }
            heard.is_listening.store(false, Ordering::Relaxed);
        }
        sleep(Duration::from_secs(1)).await;
    }
}
