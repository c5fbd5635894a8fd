//! Events: what servers report beside replies, and what becomes of the connections to them.

use std::fmt;

use tokio::time::Instant;

use super::server_clock::ServerTime;
use bellwether::store::{Digest, Entry};

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
