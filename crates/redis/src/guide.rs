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

bellwether::guide_pages! { connect failover near_copies permissions servers sizing }
