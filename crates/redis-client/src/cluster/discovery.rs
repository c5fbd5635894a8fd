//! Discovery: asks nodes of a cluster which of them owns which slots.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};

use super::slot_ranges::SlotRanges;
use crate::node::RedisNode;
use crate::request::RedisRequest;
use crate::request_error::RequestError;
use crate::slot::SLOTS;
use bellwether::StoreError;

/// The first answer that covers all slots, or the one that covers the most.
///
/// The nodes are asked in turn: the next one when one has failed, or has not answered for a while.
/// So a hung node costs a few milliseconds.
pub(super) async fn discover(
    nodes: impl IntoIterator<Item = Arc<RedisNode>>,
    deadline: Instant,
) -> Result<SlotRanges, StoreError> {
    let mut nodes = nodes.into_iter();
    let mut asked = FuturesUnordered::new();
    let mut best: Option<SlotRanges> = None;
    let mut last_error = None;
    loop {
        match nodes.next() {
            Some(node) => asked.push(ask(node, deadline)),
            None if asked.is_empty() => break,
            None => {}
        }
        let until = if nodes.size_hint().1 == Some(0) {
            deadline
        } else {
            deadline.min(Instant::now() + HEDGE)
        };
        match timeout_at(until, asked.next()).await {
            Ok(Some(Ok(ranges))) if ranges.coverage() == SLOTS => return Ok(ranges),
            Ok(Some(Ok(ranges))) => {
                let is_better = |best: &SlotRanges| ranges.coverage() > best.coverage();
                if best.as_ref().is_none_or(is_better) {
                    best = Some(ranges);
                }
            }
            Ok(Some(Err(error))) => last_error = Some(error),
            Ok(None) | Err(_) => {}
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    let unanswered = || RequestError::TimedOut(HEDGE).during(ASKING_FOR_SLOTS, None);
    best.ok_or_else(|| last_error.unwrap_or_else(unanswered))
}

async fn ask(node: Arc<RedisNode>, deadline: Instant) -> Result<SlotRanges, StoreError> {
    let request = RedisRequest::command("CLUSTER", [], ASKING_FOR_SLOTS);
    let request = request.with_args([b"SLOTS".to_vec()]);
    let replied = node.send(&request, false, deadline).await.map_err(|error| error.said)?;
    let malformed = || request.error(&RequestError::Malformed);
    SlotRanges::read(replied.value, &node.address).ok_or_else(malformed)
}

const ASKING_FOR_SLOTS: &str = "asking which node owns which slots";

/// How long a node may take before the next one is asked as well.
const HEDGE: Duration = Duration::from_millis(20);
