//! `FollowerSettings`: what a follower was told.

use std::time::Duration;

use super::stores::FollowedStores;
use super::table::ChangeTable;

#[derive(Clone, Debug)]
pub(crate) struct FollowerSettings {
    pub(crate) table: ChangeTable,
    pub(crate) stores: FollowedStores,
    /// What rows call a cache, and the kind of its keys.
    pub(crate) kinds: Vec<(String, String)>,
    pub(crate) poll: Option<Duration>,
    pub(crate) listens: bool,
    pub(crate) retain: Duration,
}
