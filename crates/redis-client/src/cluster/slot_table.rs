//! The slot table: which node owns which slot, as far as this process knows.

use std::collections::HashSet;
use std::mem;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::discovery::SlotRanges;
use crate::address::ServerAddress;
use crate::client_core::{ClientCore, ServerEvent};
use crate::node::RedisNode;
use crate::slots::{InSlot, NO_PLACE, SLOTS};
use bellwether::adapter::locked;
use bellwether::store::Digest;

/// The owners of all slots, and the nodes that are in use.
pub(crate) struct SlotTable {
    parts: Arc<ClientCore>,
    /// Held to clone, to use or to replace nodes or to read their figures, never across an `.await`.
    nodes: Mutex<NodeTable>,
}

#[derive(Default)]
struct NodeTable {
    /// A node keeps its place as long as it is in use.
    places: Vec<Option<Arc<RedisNode>>>,
    /// The addresses of replicas.
    replicas: Vec<ServerAddress>,
}

impl SlotTable {
    /// A table in which no slot has an owner.
    pub(super) fn new(parts: Arc<ClientCore>) -> Self {
        Self { parts, nodes: Mutex::default() }
    }

    /// The owner of a slot.
    pub(crate) fn owner(&self, slot: u16) -> Option<Arc<RedisNode>> {
        let nodes = locked(&self.nodes);
        nodes.places.get(usize::from(self.parts.owners.of(slot).node()))?.clone()
    }

    /// The nodes that own slots, in the order of their first slots, with those.
    pub(crate) fn owners(&self) -> Vec<(u16, Arc<RedisNode>)> {
        let nodes = locked(&self.nodes);
        let mut seen = vec![false; nodes.places.len()];
        let mut owners = Vec::new();
        for (slot, place) in (0..).zip(self.parts.owners.iter()) {
            let place = usize::from(place);
            if let Some(Some(node)) = nodes.places.get(place)
                && !mem::replace(&mut seen[place], true)
            {
                owners.push((slot, Arc::clone(node)));
            }
        }
        owners
    }

    /// How many slots have an owner.
    pub(super) fn coverage(&self) -> usize {
        self.parts.owners.iter().filter(|node| *node != NO_PLACE).count()
    }

    /// The addresses of replicas.
    pub(super) fn replicas(&self) -> Vec<ServerAddress> {
        locked(&self.nodes).replicas.clone()
    }

    /// The node at an address, which is made if it is not in use.
    pub(super) fn node(&self, address: &ServerAddress) -> Arc<RedisNode> {
        locked(&self.nodes).at_or_made(address, &self.parts)
    }

    /// Sets the owner of one slot.
    pub(super) fn assign(&self, slot: u16, owner: &RedisNode) {
        let former = self.parts.owners.of(slot).node();
        if former == owner.state.place {
            return;
        }
        // Locked, so that none is sent to the former owner after the losses were told.
        let nodes = locked(&self.nodes);
        if former != NO_PLACE {
            self.tell_losses(nodes.lost_at(), &|changed| changed == slot);
        }
        self.parts.owners.set(slot, owner.state.place);
        drop(nodes);
        self.parts.wake_where(|key| key.slot() == slot);
    }

    /// Sets the owners of all slots. Nodes that own none go out of use.
    pub(super) fn install(&self, ranges: &SlotRanges) {
        let mut nodes = locked(&self.nodes);
        let mut owners = vec![NO_PLACE; SLOTS];
        for (slots, address) in &ranges.ranges {
            let place = nodes.at_or_made(address, &self.parts).state.place;
            let slots = usize::from(*slots.start())..=usize::from(*slots.end());
            owners.get_mut(slots).unwrap_or_default().fill(place);
        }
        nodes.replicas.clone_from(&ranges.replicas);
        let pairs = || self.parts.owners.iter().zip(&owners);
        let changed: Vec<_> = pairs().map(|(former, new)| former != *new).collect();
        if pairs().any(|(former, new)| former != *new && former != NO_PLACE) {
            self.tell_losses(nodes.lost_at(), &|slot| changed[usize::from(slot)]);
        }
        (0..).zip(&owners).for_each(|(slot, owner)| self.parts.owners.set(slot, *owner));
        let idle = nodes.take_idle(&owners);
        // Dropped after the lock, because this closes connections.
        drop(nodes);
        drop(idle);
        // The former owners report no changes.
        self.parts.wake_where(|key| changed[usize::from(key.slot())]);
    }

    /// Slots are about to get other owners, which may lack what the former ones have acknowledged.
    /// Called before a request can be sent to a new owner.
    fn tell_losses(&self, since: Option<Instant>, is_changed: &dyn Fn(u16) -> bool) {
        let since = since.unwrap_or_else(Instant::now);
        let is_affected = &|digest: &Digest| is_changed(digest.slot());
        self.parts.tell(ServerEvent::MayHaveLost { since, is_affected });
    }
}

impl NodeTable {
    /// Since when any node is out of reach.
    fn lost_at(&self) -> Option<Instant> {
        self.places.iter().flatten().filter_map(|node| node.state.lost_at()).min()
    }

    fn at_or_made(&mut self, address: &ServerAddress, parts: &Arc<ClientCore>) -> Arc<RedisNode> {
        let mut in_use = self.places.iter().flatten();
        if let Some(node) = in_use.find(|node| node.state.address == *address) {
            return Arc::clone(node);
        }
        let made = |place| RedisNode::new(parts, address.clone(), place);
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or(self.places.len());
        if place >= SLOTS {
            // A cluster has no more owners than slots. This one is for the caller only.
            return Arc::new(made(NO_PLACE));
        }
        let node = Arc::new(made(place as u16));
        self.places.resize(self.places.len().max(place + 1), None);
        self.places[place] = Some(Arc::clone(&node));
        node
    }

    /// Removes the nodes that own no slot.
    fn take_idle(&mut self, owners: &[u16]) -> Vec<Arc<RedisNode>> {
        let owners: HashSet<_> = owners.iter().collect();
        let nodes = self.places.iter_mut();
        nodes.filter_map(|node| node.take_if(|node| !owners.contains(&node.state.place))).collect()
    }
}
