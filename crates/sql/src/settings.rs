//! `FollowerSettings`: what a follower was told.

use std::time::Duration;

use sqlx::Database;

use super::stores::FollowedStores;
use super::table::ChangeTable;

#[derive(Debug)]
pub(crate) struct FollowerSettings<D: Database> {
    pub(crate) table: ChangeTable<D>,
    pub(crate) stores: FollowedStores,
    /// What rows call a cache, and the kind of its keys.
    pub(crate) kinds: Vec<(String, String)>,
    pub(crate) poll: Option<Duration>,
    pub(crate) listens: bool,
    pub(crate) retain: Duration,
}
