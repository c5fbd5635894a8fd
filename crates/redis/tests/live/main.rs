//! The stores on real servers: the same contract, and what only a real server can do.

mod catalog;
mod clocks;
mod cluster;
mod conformance;
mod connecting;
mod credentials;
mod damage;
mod encrypted;
mod heartbeats;
mod lookups;
mod many;
mod messages;
mod near;
mod nodes;
mod outage;
mod pool;
mod pressure;
mod promises;
mod refusals;
mod replay;
mod sentinel;
mod server;
mod tags;
mod traces;
