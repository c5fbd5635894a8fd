//! Guides: how to run on Redis, one task per page.
//!
//! | page | read it to |
//! |---|---|
//! | [`connect`] | connect to a server, a Cluster or Sentinel, with TLS and credentials |
//! | [`permissions`] | give the store the rights that it needs |
//! | [`sizing`] | plan memory, eviction, commands and connections |
//! | [`near_copies`] | keep hot entries in the process |
//! | [`failover`] | know what an outage or a failover can lose |
//! | [`servers`] | see which servers work: Redis, Valkey, Amazon ElastiCache |

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/connect.md")]
pub mod connect {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/failover.md")]
pub mod failover {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/near_copies.md")]
pub mod near_copies {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/permissions.md")]
pub mod permissions {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/servers.md")]
pub mod servers {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/sizing.md")]
pub mod sizing {}
