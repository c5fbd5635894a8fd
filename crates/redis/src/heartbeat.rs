//! The heartbeat: a liveness probe of the tracking connection, while near copies are read.
//!
//! A copy is served only if that connection [has answered](super::near) within
//! [`silence`](super::near::silence). The heartbeat probes twice within that time, so a late reply
//! costs no caller a lookup. An idle process sends nothing, and its first read is a lookup.

use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use futures_util::future::join_all;
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
    loop {
        sleep_until(next).await;
        next = Instant::now() + HEARTBEAT;
        let Some(heartbeat) = heartbeat.upgrade() else { return };
        let Heartbeat { client, near, .. } = &*heartbeat;
        if near.was_used() {
            used_at = Instant::now();
            // Any reply will do. The connection itself notices a missing one. A node that hangs holds up
            // the next probes for no longer than a reply may take, which is in the bound of silence.
            let probes = client.probes("probing the connection");
            join_all(probes.iter().map(|probe| client.run(probe, Some))).await;
        } else if used_at.elapsed() > near.longest {
            near.empty().await;
        }
        if near.is_empty() {
            return;
        }
    }
}
