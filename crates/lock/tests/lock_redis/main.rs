//! The locks in Redis on real servers: the same contract, and what only a real server can do.

mod world;

mod clocks;
mod cluster;
mod conformance;
mod cost;
mod crowd;
mod declared;
mod encrypted;
mod fair;
mod faults;
mod messages;
mod policy;
mod processes;
mod push_messages;
mod redlock;
mod redlock_faults;
mod reentrant;
mod rights;
mod sentinel;
mod single;
