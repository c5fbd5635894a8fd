//! The heartbeat: a liveness probe of the tracking connection, while near copies are read.
//!
//! A copy is served only if that connection [has answered](super::near) within
//! [`silence`](super::near::silence). The heartbeat probes twice within that time, so a late reply
//! costs no caller a lookup. An idle process sends nothing, and its first read is a lookup.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::inner::Inner;
use super::near::HEARTBEAT;

/// The task that probes the connection. It runs while there are copies.
///
/// A request without a reply takes the connection out of use, and that invalidates all copies.
struct Heartbeat(Weak<Inner>);

/// Starts the task, unless it runs already or there is no runtime.
pub(super) fn start(store: &Arc<Inner>) {
    if let Some(near) = &store.near
        && !near.has_heartbeat.load(Ordering::Relaxed)
        && let Ok(runtime) = Handle::try_current()
        && !near.has_heartbeat.swap(true, Ordering::Relaxed)
    {
        runtime.spawn(Heartbeat(Arc::downgrade(store)).run());
    }
}

/// Starts the task again, if copies were made while it ended.
fn start_again(store: &Weak<Inner>) {
    if let Some(store) = store.upgrade()
        && store.near.as_ref().is_some_and(|near| !near.is_empty())
    {
        start(&store);
    }
}

impl Heartbeat {
    async fn run(self) {
        self.beat().await;
        let store = self.0.clone();
        drop(self);
        start_again(&store);
    }

    async fn beat(&self) {
        let mut used_at = Instant::now();
        let mut next = used_at + HEARTBEAT;
        let mut probing = JoinSet::new();
        loop {
            sleep_until(next).await;
            next = Instant::now() + HEARTBEAT;
            let Some(store) = self.0.upgrade() else { return };
            let Some(near) = &store.near else { return };
            if near.was_used() {
                used_at = Instant::now();
                while probing.try_join_next().is_some() {}
                for probe in store.client.probes("probing the connection") {
                    let client = store.client.clone();
                    // Any reply will do. The connection itself notices a missing one. Each probe has
                    // a task, so that a node that hangs holds up no probe of another one.
                    probing.spawn(async move { client.run(&probe, Some).await.map(drop) });
                }
            } else if used_at.elapsed() > near.longest() {
                near.empty().await;
            }
            if near.is_empty() {
                return;
            }
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        if let Some(near) = self.0.upgrade().as_ref().and_then(|store| store.near.as_ref()) {
            near.has_heartbeat.store(false, Ordering::Relaxed);
        }
    }
}
