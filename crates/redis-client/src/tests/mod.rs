//! Fuzz tests: any URLs, any errors, any replies and any messages of servers.

pub(crate) mod servers;
mod urls;
pub(crate) mod values;
