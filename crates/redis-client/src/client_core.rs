//! `ClientCore`: what all parts of a client share, and what they do about the events of its servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tokio::time::Instant;

use super::breaker::Outages;
use super::events::{ServerEvent, ServerObserver, Tracking};
use super::failovers::Failovers;
use super::names::Names;
use super::options::RedisClientOptions;
use super::silence::LastHeard;
use super::slots::SlotOwners;
use bellwether::store::{Digest, Watchers};
use bellwether::warn_throttled;

/// The parts of a client in addition to its options.
#[derive(Debug, Default)]
pub struct ClientSetup {
    /// Notified of the messages of scripts.
    pub watchers: Watchers,
    /// What the server is to report changes for.
    pub tracking: Tracking,
    /// They learn what happens to the servers, in this order, and read what messages carry.
    pub observers: Vec<Arc<dyn ServerObserver>>,
    /// The table of the owners of slots, if an observer reads it.
    pub owners: Option<Arc<SlotOwners>>,
}

/// What all parts of a client share.
pub(super) struct ClientCore {
    pub(super) options: RedisClientOptions,
    pub(super) setup: ClientSetup,
    pub(super) names: Names,
    pub(super) owners: Arc<SlotOwners>,
    pub(super) outages: Arc<Outages>,
    /// Of a single server. Each node of a cluster has its own.
    pub(super) failovers: Arc<Failovers>,
    /// Whether the server reports changes, as far as is known.
    pub(super) is_tracked: AtomicBool,
    /// The number of messages so far.
    pub(super) pushes: AtomicU64,
    /// The number of attempts to connect so far.
    pub(super) attempts: AtomicU64,
    /// The number of those that have succeeded.
    pub(super) opened: AtomicU64,
    /// How often timers have shown that this process was not running.
    pub(super) stalls: AtomicU64,
    stalled: LastHeard,
}

impl ClientCore {
    pub(super) fn new(options: RedisClientOptions, mut setup: ClientSetup) -> Self {
        if !options.is_resp3 {
            setup.tracking = Tracking::Nothing;
        }
        let owners = || Arc::new(SlotOwners::new(options.is_cluster()));
        Self {
            owners: setup.owners.take().unwrap_or_else(owners),
            names: Names::new(options.namespace()),
            outages: Arc::default(),
            failovers: Arc::default(),
            is_tracked: AtomicBool::new(setup.tracking != Tracking::Nothing),
            pushes: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            stalled: LastHeard::default(),
            options,
            setup,
        }
    }

    pub(super) fn tell(&self, event: ServerEvent<'_>) {
        self.setup.observers.iter().for_each(|observer| observer.note(event));
    }

    /// A node has sent this message over its tracked connection.
    pub(super) fn receive(&self, node: u16, push: &PushInfo) {
        self.pushes.fetch_add(1, Ordering::Relaxed);
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Invalidate, [Value::Array(names)]) => {
                names.iter().for_each(|name| self.changed(name));
            }
            // Without names: the server dropped all data, or stopped tracking all names.
            (PushKind::Invalidate, _) => {
                self.tell(ServerEvent::AllChanged { node });
                self.wake_where(|key| self.owns(node, key));
            }
            _ => {}
        }
    }

    /// A timer was late: this process was not running. Timers that are late together count once.
    pub(super) fn stalled(&self) {
        let now = Instant::now();
        let last = self.stalled.last();
        self.stalled.note(now);
        if now < last + ONE_STALL {
            return;
        }
        self.stalls.fetch_add(1, Ordering::Relaxed);
        warn_throttled!(target: "bellwether::store", "this process was not running for a while, or its runtime is blocked: replies of redis are late by that");
    }

    /// A silent connection was replaced by one over which the server answers.
    pub(super) fn replaced(&self) {
        warn_throttled!(target: "bellwether::store", "a connection to redis was dead, and another one has replaced it");
    }

    /// Notifies the watches of some keys, if they rely on the reports of the server.
    pub(super) fn wake_where(&self, is_affected: impl Fn(&Digest) -> bool) {
        if self.setup.tracking == Tracking::Watches {
            self.setup.watchers.tell_where(is_affected);
        }
    }

    /// Whether a key or a tag is on a node.
    pub(super) fn owns(&self, node: u16, digest: &Digest) -> bool {
        self.owners.of(self.owners.slot_of(digest)).node() == node
    }

    fn changed(&self, name: &Value) {
        let Value::BulkString(name) = name else { return };
        if let Some((digest, _)) = self.names.read(name) {
            self.tell(ServerEvent::Changed { name, digest: &digest });
            if self.setup.tracking == Tracking::Watches {
                self.setup.watchers.tell(&digest, None);
            }
        } else if let Some(tag) = self.names.tag_of(name) {
            self.tell(ServerEvent::TagChanged(&tag));
        }
    }
}

/// Timers that are late within this time of another one show the same stall.
const ONE_STALL: Duration = Duration::from_millis(100);
