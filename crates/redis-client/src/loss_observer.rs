//! The observer of lost writes.

use std::fmt;

use tokio::time::Instant;

use bellwether::Digest;

/// Learns that a server may have lost writes which it has acknowledged.
///
/// Requests call its method before they use another connection or another node, so it must not
/// block.
pub trait LossObserver: fmt::Debug + Send + Sync {
    /// The server of some keys and tags may be another one than before, or may have been restarted.
    /// Then it lacks what was not replicated or written to its disk at `since`, when the former one
    /// was last known to work, or later.
    fn may_have_lost(&self, since: Instant, is_affected: &dyn Fn(&Digest) -> bool);
}
