//! What the test binaries share.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod fault_proxy;
pub(crate) mod guarded;
pub(crate) mod mariadb_server;
pub(crate) mod postgres_server;
pub(crate) mod redis_server;
mod resp2;
mod wrong_clock;
pub(crate) mod zookeeper_server;
