//! The observer of tracked connections.

use std::fmt;

use tokio::time::Instant;

use crate::key::Digest;

/// Learns of all reported changes, and of the times in which all changes are reported. A near tier
/// needs both.
///
/// The tasks of connections call its methods, so a method must not block.
pub(in super::super) trait TrackingObserver: fmt::Debug + Send + Sync {
    /// A name of a key has changed.
    fn changed(&self, name: &[u8], digest: &Digest);

    /// A tag has changed.
    fn tag_changed(&self, tag: &Digest);

    /// Names have changed, and it is not known which.
    fn all_changed(&self);

    /// From now on changes are reported over a connection, unless it has broken meanwhile. The
    /// request for that was sent at `sent_at`.
    fn connected(&self, connection: u64, sent_at: Instant, is_broken: &dyn Fn() -> bool);

    /// A connection has answered a request that was sent at this moment.
    fn confirmed(&self, connection: u64, sent_at: Instant);

    /// A connection reports no changes any more.
    fn disconnected(&self, connection: u64);
}
