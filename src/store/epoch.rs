//! Epochs of tags: under which of them an entry was loaded.

use crate::key::Digest;

/// The epoch of a tag under which a load began.
///
/// A store replaces the hard epoch of a tag when the tag is invalidated, and the soft one when it
/// is expired. It never gives one twice. So an entry whose hard epoch is not the current one is as
/// good as none, and an entry whose soft epoch is not the current one is stale. This holds even if
/// the store forgets a tag, because the tag gets a new epoch then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagEpoch {
    tag: Digest,
    hard: u64,
    soft: u64,
}

impl TagEpoch {
    /// The epoch of a tag.
    pub fn new(tag: Digest, hard: u64, soft: u64) -> Self {
        Self { tag, hard, soft }
    }

    /// The tag.
    pub fn tag(&self) -> &Digest {
        &self.tag
    }

    /// The part that an invalidation replaces.
    pub fn hard(&self) -> u64 {
        self.hard
    }

    /// The part that an invalidation or an expiry replaces.
    pub fn soft(&self) -> u64 {
        self.soft
    }
}
