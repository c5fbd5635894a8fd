//! Locks in databases, on real MariaDB and PostgreSQL servers.
//!
//! Every promise is put to `MySqlRowLock` and `PostgresLock`, each on a server of its
//! own: see [`bench`]. Other processes are copies of this binary: see [`worker`].
//!
//! | module | promise |
//! |---|---|
//! | `contract` | the contract, as `lock::conformance` has it |
//! | `crowd` | one at a time, over processes, tasks and small pools |
//! | `crash` | a holder that is killed, stopped or cut off costs its session timeout; it is notified |
//! | `encrypted` | connections with TLS |
//! | `outage` | servers that go away, come back, forget, and never answer |
//! | `waiting` | waits end in time; a waiter that leaves delays no other |
//! | `names` | the names of keys and namespaces; messages show no secrets |
//! | `policy` | `Locks` over sessions |
//! | `rows` | what rows leave behind |
//! | `sessions` | settings and poolers that would break a session |
//!
//! `BELLWETHER_LOCK_ROUNDS` sets how often each task of the crowd counts (8).

mod bench;
mod worker;

mod contract;
mod crash;
mod crowd;
mod encrypted;
mod names;
mod outage;
mod policy;
mod queue;
mod rows;
mod sessions;
mod waiting;
