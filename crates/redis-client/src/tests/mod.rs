//! Fuzz tests: any URLs, any errors, any replies and any messages of servers.

mod servers;
mod urls;
pub(crate) mod values;
