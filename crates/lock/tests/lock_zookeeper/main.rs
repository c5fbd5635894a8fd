//! Promises of `ZooKeeperLock`, on a real ZooKeeper.
//!
//! | module | promise |
//! |---|---|
//! | `contract` | it keeps the contract of locks |
//! | `policy` | `Locks` over it: requests, notifications, and what is left |
//! | `queue` | first come, first served; no herd; a waiter that has left delays no other |
//! | `session` | a session that has ended, or may have, holds nothing, and its holder is notified |
//! | `ensemble` | a server that dies loses nothing, if others are left |
//! | `faults` | a lost answer leaves no node, and takes no more than its time |
//! | `hand_over` | what a hand-over costs |
//! | `nodes` | the paths of nodes, their rights, and their removal |
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
