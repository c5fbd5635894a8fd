//! The operations of a store.

#[cfg(doc)]
use bellwether::store::Store;
use bellwether::store::{End, Withdrawal, WithdrawalTarget};

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
    /// [`Withdrawal::Invalidate`] of a key.
    Invalidate,
    /// [`Withdrawal::Expire`] of a key.
    Expire,
    /// [`Withdrawal::Invalidate`] of a tag.
    InvalidateTag,
    /// [`Withdrawal::Expire`] of a tag.
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

impl From<(&WithdrawalTarget, Withdrawal)> for Operation {
    fn from((target, change): (&WithdrawalTarget, Withdrawal)) -> Self {
        match (target, change) {
            (WithdrawalTarget::Key(_), Withdrawal::Invalidate) => Self::Invalidate,
            (WithdrawalTarget::Key(_), Withdrawal::Expire { .. }) => Self::Expire,
            (WithdrawalTarget::Tag(_), Withdrawal::Invalidate) => Self::InvalidateTag,
            (WithdrawalTarget::Tag(_), Withdrawal::Expire { .. }) => Self::ExpireTag,
        }
    }
}
