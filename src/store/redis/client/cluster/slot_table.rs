//! The slot table: which node owns which slot, as far as this process knows.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::slot_ranges::SlotRanges;
use crate::store::redis::client::address::ServerAddress;
use crate::store::redis::client::node::{NodeFactory, RedisNode};
use crate::store::redis::client::slot::SLOTS;

/// The owners of all slots, and the nodes that are in use.
pub(super) struct SlotTable {
    factory: NodeFactory,
    /// The place of the owner of each slot, or `UNOWNED`.
    owners: Box<[AtomicU16]>,
    /// Held to clone or to replace nodes, never across an `.await`.
    nodes: RwLock<NodeTable>,
}

#[derive(Debug, Default)]
struct NodeTable {
    /// A node keeps its place as long as it is in use.
    places: Vec<Option<Arc<RedisNode>>>,
    /// The addresses of replicas.
    replicas: Vec<ServerAddress>,
}

const UNOWNED: u16 = u16::MAX;

impl SlotTable {
    /// A table in which no slot has an owner.
    pub(super) fn new(factory: NodeFactory) -> Self {
        let owners = (0..SLOTS).map(|_| AtomicU16::new(UNOWNED)).collect();
        Self { factory, owners, nodes: RwLock::default() }
    }

    /// The owner of a slot.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<RedisNode>> {
        let place = self.place(slot).load(Ordering::Acquire);
        self.nodes().places.get(usize::from(place))?.clone()
    }

    /// The nodes that own slots, in the order of their first slots, with those.
    pub(super) fn owners(&self) -> Vec<(u16, Arc<RedisNode>)> {
        let nodes = self.nodes();
        let mut seen = vec![false; nodes.places.len()];
        let mut owners = Vec::new();
        for (slot, place) in self.owners.iter().enumerate() {
            let place = usize::from(place.load(Ordering::Acquire));
            if let Some(Some(node)) = nodes.places.get(place)
                && !std::mem::replace(&mut seen[place], true)
            {
                owners.push((slot as u16, Arc::clone(node)));
            }
        }
        owners
    }

    /// How many slots have an owner.
    pub(super) fn coverage(&self) -> usize {
        self.owners.iter().filter(|place| place.load(Ordering::Relaxed) != UNOWNED).count()
    }

    /// All nodes that are in use.
    pub(super) fn in_use(&self) -> Vec<Arc<RedisNode>> {
        self.nodes().places.iter().flatten().cloned().collect()
    }

    /// The addresses of replicas.
    pub(super) fn replicas(&self) -> Vec<ServerAddress> {
        self.nodes().replicas.clone()
    }

    /// The node at an address, which is made if it is not in use.
    pub(super) fn node(&self, address: &ServerAddress) -> Arc<RedisNode> {
        if let Some(node) = self.nodes().at(address) {
            return node;
        }
        self.nodes_mut().at_or_made(address, &self.factory)
    }

    /// Sets the owner of one slot.
    pub(super) fn assign(&self, slot: u16, owner: &RedisNode) {
        self.place(slot).store(owner.place, Ordering::Release);
    }

    /// Sets the owners of all slots. Nodes that own none and were not used since the last call go
    /// out of use.
    pub(super) fn install(&self, ranges: &SlotRanges) {
        let mut nodes = self.nodes_mut();
        let mut owners = vec![UNOWNED; SLOTS];
        for (slots, address) in &ranges.ranges {
            let place = nodes.at_or_made(address, &self.factory).place;
            slots_of(&mut owners, slots).fill(place);
        }
        for (slot, place) in self.owners.iter().zip(&owners) {
            slot.store(*place, Ordering::Release);
        }
        nodes.replicas.clone_from(&ranges.replicas);
        let mut owns = vec![false; nodes.places.len()];
        for place in owners.into_iter().filter(|place| *place != UNOWNED) {
            owns[usize::from(place)] = true;
        }
        let is_idle = |node: &Arc<RedisNode>| !node.was_used() && !owns[usize::from(node.place)];
        let idle: Vec<_> =
            nodes.places.iter_mut().filter_map(|node| node.take_if(|node| is_idle(node))).collect();
        // Dropped after the lock, because this closes connections.
        drop(nodes);
        drop(idle);
    }

    fn place(&self, slot: u16) -> &AtomicU16 {
        &self.owners[usize::from(slot) % SLOTS]
    }

    fn nodes(&self) -> RwLockReadGuard<'_, NodeTable> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn nodes_mut(&self) -> RwLockWriteGuard<'_, NodeTable> {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn slots_of<'a>(owners: &'a mut [u16], slots: &RangeInclusive<u16>) -> &'a mut [u16] {
    owners.get_mut(usize::from(*slots.start())..=usize::from(*slots.end())).unwrap_or_default()
}

impl NodeTable {
    fn at(&self, address: &ServerAddress) -> Option<Arc<RedisNode>> {
        self.places.iter().flatten().find(|node| node.address == *address).cloned()
    }

    fn at_or_made(&mut self, address: &ServerAddress, factory: &NodeFactory) -> Arc<RedisNode> {
        if let Some(node) = self.at(address) {
            return node;
        }
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or(self.places.len());
        if place >= SLOTS {
            // A cluster has no more owners than slots. This one is for the caller only.
            return Arc::new(factory.node(address.clone(), UNOWNED));
        }
        let node = Arc::new(factory.node(address.clone(), place as u16));
        self.places.resize(self.places.len().max(place + 1), None);
        self.places[place] = Some(Arc::clone(&node));
        node
    }
}
