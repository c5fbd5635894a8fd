//! The heartbeat: a liveness probe of the tracking connection, while near copies are read.
//!
//! A copy is served only if that connection [has answered](super::near) within
//! [`silence`](super::near::silence). The heartbeat probes twice within that time, so a late reply
//! costs no caller a lookup. An idle process sends nothing, and its first read is a lookup.

use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::near::{HEARTBEAT, Near};
use super::task::OnDemandTask;
use bellwether_redis_client::RedisClient;

/// Probes the connection while there are copies.
#[derive(Debug)]
pub(super) struct Heartbeat {
    client: RedisClient,
    near: Arc<Near>,
    /// Ends when its owner is dropped.
    pub(super) task: OnDemandTask,
}

impl Heartbeat {
    pub(super) fn new(client: RedisClient, near: Arc<Near>) -> Arc<Self> {
        let heartbeat = Arc::new(Self { client, near, task: OnDemandTask::default() });
        let weak = Arc::downgrade(&heartbeat);
        heartbeat.task.set(move || {
            let has_copies = !weak.upgrade()?.near.is_empty();
            has_copies.then(|| beat(Weak::clone(&weak)).boxed())
        });
        heartbeat
    }
}

/// A request without a reply takes the connection out of use, and that invalidates all copies.
async fn beat(heartbeat: Weak<Heartbeat>) {
    let mut used_at = Instant::now();
    let mut next = used_at + HEARTBEAT;
    let mut probing = JoinSet::new();
    loop {
        sleep_until(next).await;
        next = Instant::now() + HEARTBEAT;
        let Some(heartbeat) = heartbeat.upgrade() else { return };
        let Heartbeat { client, near, .. } = &*heartbeat;
        if near.was_used() {
            used_at = Instant::now();
            while probing.try_join_next().is_some() {}
            for probe in client.probes("probing the connection") {
                let client = client.clone();
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
