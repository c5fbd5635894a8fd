//! What the test binaries share.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod fault_proxy;
pub(crate) mod redis_server;
