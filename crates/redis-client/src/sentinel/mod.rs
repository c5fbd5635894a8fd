//! Sentinel: which server is the primary, and when another one is.
//!
//! ```text
//! Connector ──► Sentinels::primary ──► questions ──► sentinel
//!                         ▲                                 │ `+switch-master`
//! Failovers ◄── another ──┴──────── one task ◄──────────────┘
//! ```
//!
//! Each sentinel has one connection, which is subscribed to `+switch-master` and answers questions.
//! All sentinels are asked at once. The answer with the highest configuration epoch is used, because
//! a majority of the sentinels elects the one that raises the epoch. Of answers with equal epochs,
//! the most frequent one is used. So a sentinel that is cut off or still names the old primary is overruled.
//!
//! The task runs while there is a client. It asks whenever a sentinel reports a failover or is
//! connected to again.

mod answer;
mod link;
mod sentinels;

pub(super) use self::sentinels::Sentinels;
