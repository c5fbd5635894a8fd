//! The database says what has changed: invalidations that are recorded in the writer's transaction, or by
//! triggers, and applied by a follower.
//!
//! Start with [`guide::database`].

mod batch;
mod change_log;
mod dialect;
mod follower;
mod follower_task;
pub mod guide;
mod migrations;
#[cfg(feature = "mysql")]
mod mysql;
mod parts;
#[cfg(feature = "postgres")]
mod postgres;
mod stats;
mod stores;
mod table;
mod transaction;

pub use self::change_log::ChangeLog;
pub use self::dialect::ChangesDatabase;
pub use self::follower::{Follower, FollowerHandle};
pub use self::migrations::Migrations;
#[doc(hidden)]
pub use self::parts::json_parts;
pub use self::stats::FollowerStats;
pub use self::transaction::ChangeTransaction;
