//! The heartbeat: signs of life of the connection that hears of changes, while copies are read.
//!
//! A copy is given out only if that connection was [heard from](super::near) within
//! [`silence`](super::near::silence). The heartbeat asks twice within that, so that a late reply costs
//! no caller a lookup. An idle process is silent: its first read asks the server.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::client::RedisRequest;
use super::inner::Inner;
use super::near::HEARTBEAT;

/// A task that asks for signs of life. It is there while copies are.
///
/// A request without a reply gives the connection up, as any does, and that ends all copies.
struct Heartbeat(Weak<Inner>);

/// Starts it, unless it is there or there is no runtime for it.
pub(super) fn start(store: &Arc<Inner>) {
    if let Some(near) = &store.near
        && !near.has_heartbeat.load(Ordering::Relaxed)
        && let Ok(runtime) = Handle::try_current()
        && !near.has_heartbeat.swap(true, Ordering::Relaxed)
    {
        runtime.spawn(Heartbeat(Arc::downgrade(store)).run());
    }
}

/// Starts another one, if copies were made while the last one ended.
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
        loop {
            sleep_until(next).await;
            next = Instant::now() + HEARTBEAT;
            let Some(store) = self.0.upgrade() else { return };
            let Some(near) = &store.near else { return };
            if near.was_used() {
                used_at = Instant::now();
                let ping = RedisRequest::command(redis::cmd("PING"), "asking for a sign of life");
                // Any reply is a sign of life; the connection itself notices that there is none.
                _ = store.client.run(&ping, Some).await;
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
