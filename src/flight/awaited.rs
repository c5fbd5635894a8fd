//! What a waiter waits for, as text for error messages.

use std::fmt;
use std::time::Duration;

/// What a waiter waits for, and how long that has lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// An answer of the store.
    Store,
    /// Its own load.
    OwnLoad(Duration),
    /// The load that asks for its own key.
    ThisLoad(Duration),
    /// A load of another caller of this process.
    Load(Duration),
    /// A permit to call the loader without a lease.
    Permit,
    /// A lease of another process, or of another cache or type in this one, as far as this process
    /// has seen it.
    Lease { held_for: Duration, is_renewed: bool },
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store => f.write_str("the store has not answered"),
            Self::OwnLoad(ran_for) => write!(f, "its load has run for {ran_for:?}"),
            Self::ThisLoad(ran_for) => {
                write!(f, "the load that asks is its own: it has run for {ran_for:?}")
            }
            Self::Load(ran_for) => write!(f, "a load in this process has run for {ran_for:?}"),
            Self::Permit => f.write_str("as many loads without a lease are running as may run"),
            Self::Lease { held_for, is_renewed } => {
                let renewal = if *is_renewed { "and renews it" } else { "and has not renewed it" };
                let other = "another load, here or in another process";
                write!(f, "{other}, has had the lease for {held_for:?} at least, {renewal}")
            }
        }
    }
}
