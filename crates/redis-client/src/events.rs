//! Events: what servers report beside replies, and what becomes of the connections to them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::{PushInfo, PushKind, Value};
use tokio::time::Instant;

use super::names::Names;
use super::slot::SlotOwners;
use bellwether::Digest;
use bellwether::store::Watchers;

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
}

/// Passes on the events of all servers of a client.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) names: Names,
    pub(super) tracking: Tracking,
    /// All watches of the client.
    pub(super) watchers: Watchers,
    pub(super) owners: Arc<SlotOwners>,
    pub(super) observer: Option<Arc<dyn ServerObserver>>,
    /// Whether the server reports changes, as far as is known.
    pub(super) is_tracked: AtomicBool,
    /// The number of messages so far.
    pub(super) pushes: AtomicU64,
    /// The number of attempts to connect so far.
    pub(super) attempts: AtomicU64,
}

impl Events {
    /// Those of a single server that is to report no changes.
    pub(super) fn new(names: Names, observer: Option<Arc<dyn ServerObserver>>) -> Self {
        Self {
            names,
            tracking: Tracking::Nothing,
            watchers: Watchers::default(),
            owners: Arc::new(SlotOwners::new(false)),
            observer,
            is_tracked: AtomicBool::new(false),
            pushes: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
        }
    }

    pub(super) fn tell(&self, event: ServerEvent<'_>) {
        self.observer.as_ref().inspect(|observer| observer.note(event));
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
            // Messages may have been lost, and no more will come.
            (PushKind::Disconnection, _) => self.wake_where(|key| self.owns(node, key)),
            _ => {}
        }
    }

    /// Notifies the watches of some keys, if they rely on the reports of the server.
    pub(super) fn wake_where(&self, is_affected: impl Fn(&Digest) -> bool) {
        if self.tracking == Tracking::Watches {
            self.watchers.tell_where(is_affected);
        }
    }

    /// Whether a key or a tag is on a node.
    pub(super) fn owns(&self, node: u16, digest: &Digest) -> bool {
        self.owners.of(self.owners.slot_of(digest)).node() == node
    }

    fn changed(&self, name: &Value) {
        let Value::BulkString(name) = name else { return };
        if let Some(digest) = self.names.digest_of(name) {
            self.tell(ServerEvent::Changed { name, digest: &digest });
            if self.tracking == Tracking::Watches {
                self.watchers.tell(&digest);
            }
        } else if let Some(tag) = self.names.tag_of(name) {
            self.tell(ServerEvent::TagChanged(&tag));
        }
    }
}
