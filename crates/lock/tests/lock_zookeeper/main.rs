//! Promises of `ZooKeeperLock`, on a real ZooKeeper.
//!
//! | module | promise |
//! |---|---|
//! | `contract` | it keeps the contract of locks |
//! | `policy` | `Locks` over it: who asks, who is told, and what is left |
//! | `queue` | first come, first served; no herd; nobody who has gone is in the way |
//! | `session` | a session that has ended, or may have, holds nothing, and its holder is told |
//! | `ensemble` | a server that dies loses nothing, if others are left |
//! | `faults` | a lost answer leaves no node, and takes no more than its time |
//! | `hand_over` | what a hand-over costs |
//! | `nodes` | where nodes are, who may touch them, and that none stay |
//! | `fleet` | killed and stopped processes; exclusion over processes |

mod board;

mod contract;
mod ensemble;
mod faults;
mod fleet;
mod hand_over;
mod nodes;
mod policy;
mod queue;
mod session;
