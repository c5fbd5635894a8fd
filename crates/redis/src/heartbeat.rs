//! The heartbeat: a liveness probe of the tracking connection, while near copies are read.
//!
//! A copy is served only if that connection [has answered](super::near) within
//! [`silence`](super::near::silence). The heartbeat probes twice within that time, so a late reply
//! costs no caller a lookup. An idle process sends nothing, and its first read is a lookup.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until};

use super::near::{HEARTBEAT, Near};
use bellwether_redis_client::RedisClient;

/// Probes the connection until there are no copies. A request without a reply takes the connection out of
/// use, and that invalidates all copies.
pub(super) async fn beat(client: RedisClient, near: Arc<Near>) {
    let mut used_at = Instant::now();
    let mut next = used_at + HEARTBEAT;
    while !near.is_empty() {
        sleep_until(next).await;
        next = Instant::now() + HEARTBEAT;
        if near.was_used() {
            used_at = Instant::now();
            // Any reply will do. The connection itself notices a missing one. A node that hangs holds up
            // the next probes for no longer than a reply may take, which is in the bound of silence.
            let probes = client.probes("probing the connection");
            join_all(probes.iter().map(|probe| client.run(probe, Some))).await;
        } else if used_at.elapsed() > near.longest {
            near.empty().await;
        }
    }
}
