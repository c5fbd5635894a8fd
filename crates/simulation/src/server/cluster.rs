//! The cluster as one of its nodes knows it: which slots it owns, and what it says of the others.

use std::ops::RangeInclusive;

use super::resp::RespValue;
use super::version::ServerVersion;

/// The cluster, as one of its nodes knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// The address of the node.
    pub own: String,
    /// Ranges of slots, with their primary and its replicas.
    pub ranges: Vec<(RangeInclusive<u16>, Vec<String>)>,
    /// Slots that it gives to another node, or gets from there.
    pub moving: Option<(RangeInclusive<u16>, String)>,
    /// Whether the node takes no requests.
    pub is_down: bool,
}

impl ClusterView {
    /// Whether the node owns slots.
    pub(super) fn is_primary(&self) -> bool {
        self.ranges.iter().any(|(_, nodes)| nodes[0] == self.own)
    }

    /// The reply to `CLUSTER SLOTS`.
    pub(super) fn slots(&self, version: ServerVersion) -> RespValue {
        let node = |address: &String| {
            let (host, port) = host_and_port(address);
            let port = RespValue::Int(port.parse().unwrap_or_default());
            let mut node = vec![RespValue::bytes(host), port, RespValue::bytes(node_id(address))];
            if version > ServerVersion::V6 {
                node.push(RespValue::Array(Vec::new()));
            }
            RespValue::Array(node)
        };
        let range = |(slots, nodes): &(RangeInclusive<u16>, Vec<String>)| {
            let bounds = [*slots.start(), *slots.end()].map(|slot| RespValue::Int(slot.into()));
            RespValue::Array(bounds.into_iter().chain(nodes.iter().map(node)).collect())
        };
        RespValue::Array(self.ranges.iter().map(range).collect())
    }

    /// Why a command with these names is not executed by the node. `is_stored` says whether it has a name,
    /// and `asks` whether `ASKING` came before.
    pub(super) fn refusal(
        &self,
        names: &[Vec<u8>],
        asks: bool,
        version: ServerVersion,
        is_stored: impl FnMut(&Vec<u8>) -> bool,
    ) -> Option<RespValue> {
        let slot = slot_of(names.first()?);
        if names.iter().any(|name| slot_of(name) != slot) {
            return Some(RespValue::error(CROSS_SLOT));
        }
        let owner = self.ranges.iter().find(|(slots, _)| slots.contains(&slot));
        let Some((_, owner)) = owner else { return Some(RespValue::error(NOT_SERVED)) };
        if self.is_down {
            return Some(RespValue::error(DOWN));
        }
        let is_own = owner[0] == self.own;
        let moving = self.moving.as_ref().filter(|(slots, _)| slots.contains(&slot));
        let stored = moving.map_or(0, |_| names.iter().map(is_stored).filter(|it| *it).count());
        let error = match moving {
            Some(_) if is_own && stored == names.len() => return None,
            // Redis 6.2 sends the client on, and the other node refuses it.
            Some(_) if is_own && stored > 0 && version > ServerVersion::V6 => TRY_AGAIN.into(),
            Some((_, to)) if is_own => format!("ASK {slot} {to}"),
            Some(_) if asks && names.len() > 1 && stored < names.len() => TRY_AGAIN.into(),
            Some(_) if asks => return None,
            _ if is_own => return None,
            _ => format!("MOVED {slot} {}", owner[0]),
        };
        Some(RespValue::error(error))
    }
}

/// The names of a command, by which it has a slot.
pub(super) fn names_of(words: &[Vec<u8>]) -> &[Vec<u8>] {
    match &*words[0].to_ascii_lowercase() {
        b"eval" | b"evalsha" => {
            let count = words.get(2).and_then(|it| std::str::from_utf8(it).ok()?.parse().ok());
            let names: Option<usize> = count;
            names.and_then(|names| words.get(3..3 + names)).unwrap_or_default()
        }
        b"mget" | b"del" | b"exists" => &words[1..],
        b"get" | b"set" | b"setrange" | b"pttl" | b"pexpiretime" | b"pexpire" | b"pexpireat"
        | b"hset" => words.get(1..2).unwrap_or_default(),
        _ => &[],
    }
}

/// The slot of a name: the CRC16 of what its first braces have, or of all of it.
pub(crate) fn slot_of(name: &[u8]) -> u16 {
    let begin = name.iter().position(|byte| *byte == b'{').map(|at| &name[at + 1..]);
    let tag = begin.and_then(|begin| {
        begin.split(|byte| *byte == b'}').next().filter(|tag| tag.len() < begin.len())
    });
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(name);
    let crc = hashed.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    });
    crc % SLOTS
}

/// The name of a node.
fn node_id(address: &str) -> String {
    let digits: String = address.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{digits:0<40.40}")
}

pub(super) fn host_and_port(address: &str) -> (&str, &str) {
    address.rsplit_once(':').unwrap_or((address, ""))
}

/// How many slots there are.
pub(crate) const SLOTS: u16 = 16_384;

const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
const NOT_SERVED: &str = "CLUSTERDOWN Hash slot not served";
const DOWN: &str = "CLUSTERDOWN The cluster is down";
const TRY_AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";
