//! What the other writer of the model is doing.

use super::payload::{Grant, Version};

/// What the other writer is doing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Putter {
    Idle,
    /// Asks for the lease, and has read this epoch before.
    Asking {
        put: Put,
        seen: Option<u8>,
    },
    /// Stores the value, and has read this epoch again.
    Committing {
        put: Put,
        lease: Grant,
        seen: Option<u8>,
    },
    /// Invalidates the key.
    Clearing {
        put: Put,
        retries: bool,
        has_failed: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Put {
    pub(super) version: Version,
    /// Of its claim: its token.
    pub(super) id: u8,
    pub(super) is_first: bool,
}

impl Putter {
    pub(super) fn is_putting(self) -> bool {
        self != Self::Idle
    }

    /// Whether its claim may have the lease.
    pub(super) fn holds(self, holder: u8) -> bool {
        match self {
            Self::Asking { put, .. } | Self::Committing { put, .. } => put.id == holder,
            Self::Idle | Self::Clearing { .. } => false,
        }
    }
}
