//! Discovery: asks nodes of a cluster which of them owns which slots.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep, timeout_at};

use super::slot_ranges::SlotRanges;
use crate::node::RedisNode;
use crate::request::RedisRequest;
use crate::server_error::ServerError;
use crate::slots::SLOTS;
use bellwether::StoreError;

/// The first answer that covers all slots, or the one that covers the most.
///
/// The nodes are asked in turn, the next one when the one before has not answered for a while. So a
/// hung node costs a few milliseconds.
pub(super) async fn discover(
    nodes: impl Iterator<Item = impl FnOnce() -> Arc<RedisNode>>,
    deadline: Instant,
) -> Result<SlotRanges, StoreError> {
    let asked = (0..).zip(nodes).map(async |(turn, node)| {
        sleep(HEDGE * MOST_TURNS.min(turn)).await;
        ask(node()).await
    });
    let mut asked: FuturesUnordered<_> = asked.collect();
    let mut best: Option<SlotRanges> = None;
    let mut error = ServerError::late(HEDGE).during(ASKING_FOR_SLOTS, None);
    while let Ok(Some(answer)) = timeout_at(deadline, asked.next()).await {
        let known = best.as_ref().map_or(0, SlotRanges::coverage);
        match answer {
            Ok(ranges) if ranges.coverage() == SLOTS => return Ok(ranges),
            Ok(ranges) if best.is_none() || ranges.coverage() > known => best = Some(ranges),
            Ok(_) => {}
            Err(failed) => error = failed,
        }
    }
    best.ok_or(error)
}

async fn ask(node: Arc<RedisNode>) -> Result<SlotRanges, StoreError> {
    let request = RedisRequest::command("CLUSTER", [], [b"SLOTS".to_vec()], ASKING_FOR_SLOTS);
    let reported = |error| node.reported(request.error(&error));
    let replied = node.send(&request).await.map_err(reported)?;
    let malformed = || request.error(&ServerError::malformed());
    SlotRanges::read(replied.value, &node.state.address).ok_or_else(malformed)
}

const ASKING_FOR_SLOTS: &str = "asking which node owns which slots";

/// How long a node may take before the next one is asked as well, and after how many turns all others
/// are.
const HEDGE: Duration = Duration::from_millis(20);
const MOST_TURNS: u32 = 5;
