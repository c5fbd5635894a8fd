//! `ClientCore`: what all parts of a client share, and what they do about the events of its servers.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::breaker::Outages;
use super::names::Names;
use super::options::RedisClientOptions;
use super::server_clock::ServerTime;
use super::silence::LastHeard;
use super::slots::SlotOwners;
use bellwether::adapter::locked;
use bellwether::store::{Digest, Entry, Watchers};
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

/// Counts how often the server was found to be a replica. After a failover its address may lead to
/// another server, so all older connections are given up.
#[derive(Default)]
pub(super) struct Failovers {
    count: AtomicU64,
    /// Notified when another server is the primary. Then the connections to the former one end,
    /// because it may still accept writes, which are lost.
    pub(super) switched: Notify,
    /// Before that, a replica gives up no more connections. Held for an instruction or two.
    next_at: Mutex<Option<Instant>>,
}

impl Failovers {
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Another server is the primary now.
    pub(super) fn switch(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.switched.notify_waiters();
    }

    /// The server is a replica.
    pub(super) fn note(&self) {
        let now = Instant::now();
        let mut next_at = locked(&self.next_at);
        if next_at.is_some_and(|next_at| now < next_at) {
            return;
        }
        *next_at = Some(now + RECONNECT);
        // The warning runs code of a subscriber.
        drop(next_at);
        self.count.fetch_add(1, Ordering::Relaxed);
        warn_throttled!(target: "bellwether::store", "redis has become a replica: connecting again");
    }
}

/// The pause between reconnects because of a replica. If the address still leads to one, a reconnect for each
/// write would only add load.
const RECONNECT: Duration = Duration::from_secs(1);

/// What a client learns of its servers.
///
/// A node is a number that stays the same while its slots are served: 0 for a single server.
#[derive(Clone, Copy)]
#[non_exhaustive]
#[expect(missing_debug_implementations, reason = "some parts are functions")]
pub enum ServerEvent<'a> {
    /// A name of a key has changed.
    Changed {
        /// The name.
        name: &'a [u8],
        /// The key.
        digest: &'a Digest,
    },
    /// A tag has changed.
    TagChanged(&'a Digest),
    /// Names on a node have changed, and it is not known which.
    AllChanged {
        /// The node.
        node: u16,
    },
    /// From now on changes are reported over a connection to a node, unless it has broken meanwhile.
    Connected {
        /// The node.
        node: u16,
        /// The number of the connection.
        connection: u64,
        /// When that was requested.
        sent_at: Instant,
        /// Whether it has broken.
        is_broken: &'a dyn Fn() -> bool,
    },
    /// A tracked connection to a node has answered a request.
    Confirmed {
        /// The node.
        node: u16,
        /// The number of the connection.
        connection: u64,
        /// When the request was sent.
        sent_at: Instant,
    },
    /// A connection to a node reports no changes any more.
    Disconnected {
        /// The node.
        node: u16,
        /// The number of the connection.
        connection: u64,
    },
    /// The server of some keys and tags may be another one than before, or may have been restarted.
    /// Then it lacks what was not replicated or written to its disk at `since`, when the former one
    /// was last known to work, or later.
    MayHaveLost {
        /// When the former server was last known to work.
        since: Instant,
        /// Whether a key or a tag is one of those.
        is_affected: &'a dyn Fn(&Digest) -> bool,
    },
}

/// Learns what happens to the servers of a client. A near tier needs all reported changes, and the
/// times in which all changes are reported.
///
/// Requests and the tasks of connections call it before they go on, so it must not block.
pub trait ServerObserver: fmt::Debug + Send + Sync {
    /// This has happened.
    fn note(&self, event: ServerEvent<'_>);

    /// The entry that a message about a key carries, if it can be used at this time of the server:
    /// `more` is what follows the digest of the key. By default there is none.
    fn read(&self, _key: &Digest, _more: &[u8], _now: ServerTime) -> Option<Entry> {
        None
    }
}

/// What the server is to report changes for (client tracking).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracking {
    /// For nothing.
    #[default]
    Nothing,
    /// For copies of what was read: the observer learns of them.
    Copies,
    /// For watches of the names that scripts have read.
    Watches,
    /// For all names of the namespace, whichever process changes them (broadcasting mode): the observer
    /// learns of them. It costs the server a message for each change, so it is for the tools of operators.
    Namespace,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_requests_that_find_a_replica_cause_one_reconnect_a_second() {
        let failovers = Failovers::default();
        (0..1000).for_each(|_| failovers.note());
        assert_eq!(failovers.count(), 1);
    }
}
