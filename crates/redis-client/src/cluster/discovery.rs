//! Discovery: asks nodes of a cluster which of them owns which slots.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::redirect::address_of;
use crate::address::ServerAddress;
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

/// The owners of the slots, as a node knows them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SlotRanges {
    /// Ranges of slots, with the primary of each.
    pub(super) ranges: Vec<(RangeInclusive<u16>, ServerAddress)>,
    /// The replicas. They know the cluster, too.
    pub(super) replicas: Vec<ServerAddress>,
}

impl SlotRanges {
    /// Reads the reply of the node at `asked`. `None` if it is no such reply.
    pub(super) fn read(reply: Value, asked: &ServerAddress) -> Option<Self> {
        let Value::Array(ranges) = reply else { return None };
        let mut read = Self::default();
        for range in ranges {
            let Value::Array(fields) = range else { return None };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = &*fields else { return None };
            let [first, last] = [*first, *last].map(slot);
            let mut addresses = nodes.iter().map(|node| address(node, asked));
            // A primary without a port cannot be connected to, so its slots have no owner.
            if let Some(primary) = addresses.next().flatten()? {
                read.ranges.push((first?..=last?, primary));
            }
            read.replicas.extend(addresses.flatten().flatten());
        }
        Some(read)
    }

    /// How many slots have an owner.
    pub(super) fn coverage(&self) -> usize {
        self.ranges.iter().map(|(range, _)| range.len()).sum()
    }
}

fn slot(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|slot| usize::from(*slot) < SLOTS)
}

/// The address of a node. The outer `None` means that it cannot be read, the inner one that there
/// is no address.
fn address(node: &Value, asked: &ServerAddress) -> Option<Option<ServerAddress>> {
    let Value::Array(fields) = node else { return None };
    let [host, Value::Int(port), ..] = &**fields else { return None };
    let host = match host {
        Value::BulkString(host) => str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        Value::Nil => "",
        _ => return None,
    };
    Some(address_of(host, u16::try_from(*port).ok()?, asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> ServerAddress {
        ServerAddress::Tcp { host: host.to_owned(), port }
    }

    fn node(host: Option<&str>, port: i64) -> Value {
        let host = host.map_or(Value::Nil, |host| Value::BulkString(host.as_bytes().to_vec()));
        let id = Value::BulkString(b"09dbe9720cda62f7865eabc5fd8857c5d2678366".to_vec());
        Value::Array(vec![host, Value::Int(port), id, Value::Array(vec![])])
    }

    fn range(first: i64, last: i64, nodes: &[Value]) -> Value {
        Value::Array([&[Value::Int(first), Value::Int(last)], nodes].concat())
    }

    fn read(ranges: &[Value]) -> Option<SlotRanges> {
        SlotRanges::read(Value::Array(ranges.to_vec()), &tcp("seed", 7000))
    }

    #[test]
    fn ranges_have_their_primaries_and_replicas() {
        let [a, b, c] = [7001, 7002, 7003].map(|port| node(Some("10.0.0.1"), port));
        let ranges = read(&[range(0, 100, &[a, b]), range(101, 16_383, &[c])]).unwrap();
        let owners = vec![(0..=100, tcp("10.0.0.1", 7001)), (101..=16_383, tcp("10.0.0.1", 7003))];
        assert_eq!(ranges.ranges, owners);
        assert_eq!(ranges.replicas, [tcp("10.0.0.1", 7002)]);
        assert_eq!(ranges.coverage(), SLOTS);
    }

    #[test]
    fn a_host_that_the_server_does_not_know_is_the_one_that_was_asked() {
        let hosts = [None, Some(""), Some("?"), Some("::1"), Some("redis-1.internal")];
        let ranges = hosts.map(|host| range(1, 1, &[node(host, 7001)]));
        let addresses = read(&ranges).unwrap().ranges.into_iter().map(|(_, address)| address);
        let seed = || tcp("seed", 7001);
        let known = [tcp("::1", 7001), tcp("redis-1.internal", 7001)];
        let expected = [seed(), seed(), seed()].into_iter().chain(known);
        assert!(addresses.eq(expected));
    }

    #[test]
    fn slots_of_a_primary_without_a_port_have_no_owner() {
        let ranges = read(&[range(0, 9, &[node(Some("a"), 0)])]).unwrap();
        assert_eq!(ranges.coverage(), 0);
    }

    #[test]
    fn replies_that_make_no_sense_are_refused() {
        let a = || node(Some("a"), 7001);
        for nonsense in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 1, &[])]),
            Value::Array(vec![range(-1, 1, &[a()])]),
            Value::Array(vec![range(0, 16_384, &[a()])]),
            Value::Array(vec![range(0, 1, &[Value::Nil])]),
            Value::Array(vec![range(0, 1, &[node(Some("a"), 65_536)])]),
        ] {
            assert_eq!(SlotRanges::read(nonsense.clone(), &tcp("seed", 1)), None, "{nonsense:?}");
        }
    }

    /// What is read of a reply has the slots and the ports that a cluster can have.
    #[test]
    fn fuzzed_replies_are_none_or_have_slots_and_ports_that_there_are() {
        use crate::tests::values;
        use bellwether_testkit::fuzz::{Choices, fuzz};

        fuzz("CLUSTER SLOTS", 64, 1, |choices| {
            let hosts = [Some("a"), Some("10.0.0.1"), Some("?"), Some(""), None];
            let nodes = |choices: &mut Choices| {
                let nodes = 0..=choices.below(3);
                let node = |_| node(hosts[choices.below(5)], choices.below(65_536) as i64);
                nodes.map(node).collect::<Vec<_>>()
            };
            let ranges = (0..choices.below(4)).map(|_| {
                let [first, last] = [choices.below(SLOTS) as i64, choices.below(SLOTS) as i64];
                range(first.min(last), first.max(last), &nodes(choices))
            });
            let ranges: Vec<_> = ranges.collect();
            assert!(read(&ranges).is_some(), "{ranges:?}");
            let reply = values::changed(choices, Value::Array(ranges));
            let Some(slots) = SlotRanges::read(reply.clone(), &tcp("seed", 7000)) else { return };
            let owners = slots.ranges.iter().map(|(_, owner)| owner).chain(&slots.replicas);
            for owner in owners {
                assert!(matches!(owner, ServerAddress::Tcp { port: 1.., .. }), "{reply:?}");
            }
            for (range, _) in &slots.ranges {
                assert!(usize::from(*range.end().max(range.start())) < SLOTS, "{reply:?}");
            }
        });
    }
}
