//! The operations of a store.

#[cfg(doc)]
use bellwether::store::Store;
use bellwether::store::{Change, ChangeTarget, End};

/// An operation of a [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// [`Store::lookup`].
    Lookup,
    /// [`Store::acquire`].
    Acquire,
    /// [`Store::renew`].
    Renew,
    /// [`End::Commit`].
    Commit,
    /// [`End::Fail`].
    Fail,
    /// [`End::Abandon`].
    Abandon,
    /// [`Change::Invalidate`] of a key.
    Invalidate,
    /// [`Change::Expire`] of a key.
    Expire,
    /// [`Change::Invalidate`] of a tag.
    InvalidateTag,
    /// [`Change::Expire`] of a tag.
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

impl From<&End> for Operation {
    fn from(end: &End) -> Self {
        match end {
            End::Commit(..) => Self::Commit,
            End::Fail(..) => Self::Fail,
            End::Abandon(_) => Self::Abandon,
        }
    }
}

impl From<(&ChangeTarget, Change)> for Operation {
    fn from((target, change): (&ChangeTarget, Change)) -> Self {
        match (target, change) {
            (ChangeTarget::Key(_), Change::Invalidate) => Self::Invalidate,
            (ChangeTarget::Key(_), Change::Expire { .. }) => Self::Expire,
            (ChangeTarget::Tag(_), Change::Invalidate) => Self::InvalidateTag,
            (ChangeTarget::Tag(_), Change::Expire { .. }) => Self::ExpireTag,
        }
    }
}
