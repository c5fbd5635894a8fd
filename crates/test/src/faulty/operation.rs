//! The operations of a store.

#[cfg(doc)]
use bellwether::store::Store;

/// An operation of a [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// [`Store::lookup`] and [`Store::lookup_tagged`].
    Lookup,
    /// [`Store::acquire`].
    Acquire,
    /// [`Store::renew`].
    Renew,
    /// [`Store::commit`].
    Commit,
    /// [`Store::fail`].
    Fail,
    /// [`Store::abandon`].
    Abandon,
    /// [`Store::invalidate`].
    Invalidate,
    /// [`Store::expire`].
    Expire,
    /// [`Store::invalidate_tag`].
    InvalidateTag,
    /// [`Store::expire_tag`].
    ExpireTag,
}

impl Operation {
    /// All operations.
    pub const ALL: &[Self] = &[
        Self::Lookup,
        Self::Acquire,
        Self::Renew,
        Self::Commit,
        Self::Fail,
        Self::Abandon,
        Self::Invalidate,
        Self::Expire,
        Self::InvalidateTag,
        Self::ExpireTag,
    ];
}
