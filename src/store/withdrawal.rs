//! Changes: what is said of entries after the source has changed.

use std::time::Duration;

use crate::key::Key;
use crate::tag::Tag;

/// What a [change](super::Store::withdraw) is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "a store handles each of them")]
pub enum WithdrawalTarget {
    /// A key.
    Key(Key),
    /// A tag, and with it all entries that have it.
    Tag(Tag),
}

/// What happens to the entries of a [target](WithdrawalTarget).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "a store handles each of them")]
pub enum Withdrawal {
    /// They are removed, or count as none.
    Invalidate,
    /// As that, but entries with a stale window stay, and are stale.
    Expire {
        /// Over which time the entries of a tag become stale: each at a time of its own. If another
        /// expiry of the tag comes within that time, its entries from before the first one are stale
        /// at once. The entry of a key is stale at once, whatever this is.
        over: Duration,
    },
}

impl Withdrawal {
    /// An expiry at once.
    pub const EXPIRE: Self = Self::Expire { over: Duration::ZERO };
}
