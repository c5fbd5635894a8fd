//! The messages between a test and its lock workers.

use serde::{Deserialize, Serialize};

use super::count::Count;

/// How a worker is set up.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LockSetup {
    /// Which of the locks of a suite.
    pub kind: String,
    /// Where its servers are.
    pub address: String,
}

/// A command to a worker.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum LockCommand {
    /// Take a key for good, renewing at a third of the lease.
    Hold {
        /// The number of the key.
        key: u64,
        /// The lease, in milliseconds.
        lease_ms: u64,
        /// For how long it waits for the key, in milliseconds.
        patience_ms: u64,
    },
    /// Tell the fencing token of a key that it took, whether or not it is lost meanwhile: a write by
    /// a holder that checks nothing.
    Write(u64),
    /// Wait until a key that it took is lost.
    Lose(u64),
    /// Count under a lock.
    Count(Count),
}

/// The reply of a worker.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum LockReply {
    /// It holds the key by this fencing token, if the lock gives one.
    Held(Option<u64>),
    /// The key is taken.
    Busy,
    /// The lock has failed, by this kind of error.
    Failed(String),
    /// It has lost the key that it held by this fencing token.
    Lost(Option<u64>),
    /// It has counted, and waited so many microseconds for one grant at most.
    Counted {
        /// In microseconds.
        longest_us: u64,
    },
}
