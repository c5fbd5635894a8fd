//! The observer of tracked connections.

use std::fmt;

use tokio::time::Instant;

use bellwether::Digest;

/// Learns of all reported changes, and of the times in which all changes are reported. A near tier
/// needs both.
///
/// A node is a number that stays the same while its slots are served: 0 for a single server. The
/// tasks of connections call its methods, so a method must not block.
pub trait TrackingObserver: fmt::Debug + Send + Sync {
    /// A name of a key has changed.
    fn changed(&self, name: &[u8], digest: &Digest);

    /// A tag has changed.
    fn tag_changed(&self, tag: &Digest);

    /// Names on a node have changed, and it is not known which.
    fn all_changed(&self, node: u16);

    /// From now on changes are reported over a connection to a node, unless it has broken meanwhile.
    /// The request for that was sent at `sent_at`.
    fn connected(&self, node: u16, connection: u64, sent_at: Instant, is_broken: &dyn Fn() -> bool);

    /// A connection to a node has answered a request that was sent at this moment.
    fn confirmed(&self, node: u16, connection: u64, sent_at: Instant);

    /// A connection to a node reports no changes any more.
    fn disconnected(&self, node: u16, connection: u64);
}
